"""One graph and one split of its nodes, ready to be cut into batches."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from datamodules.graphs.graph_arrays import Masks
from datamodules.graphs.prepare import Edges, in_order, with_self_loops

STAGES = ("train", "val", "test")


@dataclass(frozen=True)
class NodeGraph:
    """A graph whose nodes are to be classified.

    Attributes:
        x: features, float32 (dense or, for whole graphs, sparse CSR) or complex64 ``[N, F]``.
        y: labels, int64 ``[N]``.
        edges: edges without self-loops.
        masks: the split.
        self_loops: whether a batch has one self-loop for each of its nodes.
    """

    x: Tensor
    y: Tensor
    edges: Edges
    masks: Masks
    self_loops: bool = True

    def __len__(self) -> int:
        return len(self.y)

    def members(self, stage: str) -> np.ndarray:
        """Return the nodes of ``train``, ``val`` or ``test``, in ascending order."""
        return np.flatnonzero(getattr(self.masks, stage))

    def batch(self, edges: Edges, nodes: np.ndarray | None = None) -> Data:
        """Return ``x``, ``y``, the edges with their phases and directions, and ``labelled_mask``.

        Args:
            edges: edges without self-loops, their ends numbered as in ``nodes``.
            nodes: the nodes of the batch; None takes all of them.
        """
        x, y, labelled = self.x, self.y, torch.from_numpy(self.masks.train)
        if nodes is not None:
            chosen = torch.from_numpy(nodes)
            x, y, labelled = x[chosen], y[chosen], labelled[chosen]
        edges = with_self_loops(edges, len(y)) if self.self_loops else in_order(edges, len(y))
        data = Data(
            x=x,
            y=y,
            edge_index=torch.from_numpy(np.stack([edges.source, edges.target])),
            labelled_mask=labelled,
        )
        if edges.direction is not None:
            data.edge_direction = torch.from_numpy(edges.direction)
        if edges.phase is not None:
            data.edge_phase = torch.from_numpy(edges.phase)
        return data


def mask_of(members: np.ndarray, nodes: int) -> Tensor:
    """Return the bool mask ``[nodes]`` that is true on ``members``."""
    mask = torch.zeros(nodes, dtype=torch.bool)
    mask[torch.from_numpy(members)] = True
    return mask
