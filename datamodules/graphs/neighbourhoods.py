"""Sampled neighbourhoods of seed nodes as batches."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch_geometric.data import Data

from datamodules.base import BatchKey
from datamodules.graphs.neighbours import NeighbourSampler
from datamodules.graphs.node_graph import STAGES, NodeGraph, mask_of


class Neighbourhoods:
    """The nodes of one stage, each batch with the neighbours that were drawn for it.

    A batch is a graph of its own: ``n_id`` int64 ``[n]`` numbers its nodes in the whole graph, the seed nodes come first, and only
    they are in the mask of the stage. Self-loops are added after sampling. Neighbours are drawn anew for each training batch; in
    validation and test the same ones are drawn at every epoch.

    Args:
        graph: the graph.
        stage: ``train``, ``val`` or ``test``.
        fan_outs: neighbours of a node at most, for each hop; -1 keeps all.
        seed: seed of the draw.
    """

    def __init__(self, graph: NodeGraph, stage: str, fan_outs: Sequence[int], seed: int = 0) -> None:
        self.graph, self.stage, self.seed = graph, stage, seed
        self.seed_nodes = graph.members(stage)
        self.sampler = NeighbourSampler(graph.edges, len(graph), fan_outs)

    def __len__(self) -> int:
        return len(self.seed_nodes)

    def __getitem__(self, key: BatchKey) -> Data:
        seeds = self.seed_nodes[key.local_indices]
        drawn_for = key if self.stage == "train" else replace(key, epoch=0, batch=0)
        salt = drawn_for.generator(self.seed).integers(2**64, dtype=np.uint64)
        nodes, edges = self.sampler.subgraph(seeds, salt)
        data = self.graph.batch(edges, nodes)
        data.n_id = torch.from_numpy(nodes)
        for stage in STAGES:
            data[f"{stage}_mask"] = mask_of(np.arange(len(seeds) if stage == self.stage else 0), len(nodes))
        data.loss_scale = torch.tensor((key.rows.step or 1) * len(seeds) / len(key.indices))
        return data
