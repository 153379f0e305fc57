"""The whole graph as one batch, the labelled nodes shared by the processes."""

from copy import copy

import torch
from torch_geometric.data import Data

from datamodules.base import BatchKey
from datamodules.graphs.node_graph import STAGES, NodeGraph, mask_of


class WholeGraph:
    """Hands out one graph, with the masks of the asking process.

    A full batch cannot be cut by samples: each of R processes runs the whole forward pass and takes the loss of its share of the
    training nodes. Rank r has every R-th node of each stage, beginning with the r-th. As the gradients of the ranks are averaged,
    ``loss_scale`` = R · |share| / |training nodes| times the mean over the share gives the gradient of one process.

    Among samplers it is a set of R entries of which each process reads one a step.

    Args:
        graph: the graph.
        processes: R.
    """

    def __init__(self, graph: NodeGraph, processes: int = 1) -> None:
        self.graph, self.processes = graph, processes
        self._data = graph.batch(graph.edges)
        self._shares: dict[int, Data] = {}
        for stage in STAGES:
            if (count := len(graph.members(stage))) < processes:
                raise ValueError(f"{count} {stage} nodes cannot be shared by {processes} processes: use at most {count}")

    def __len__(self) -> int:
        return self.processes

    def __getitem__(self, key: BatchKey) -> Data:
        """Return a copy whose tensors are shared, so that changing an attribute of it changes no other batch."""
        rank = key.rows.start
        if rank not in self._shares:
            self._shares[rank] = self._share(rank)
        return copy(self._shares[rank])

    def _share(self, rank: int) -> Data:
        data = copy(self._data)
        members = {stage: self.graph.members(stage) for stage in STAGES}
        shares = {stage: nodes[rank :: self.processes] for stage, nodes in members.items()}
        for stage, nodes in shares.items():
            data[f"{stage}_mask"] = mask_of(nodes, len(self.graph))
        data.loss_scale = torch.tensor(self.processes * len(shares["train"]) / len(members["train"]))
        return data
