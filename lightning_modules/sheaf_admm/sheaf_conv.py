"""Sheaf diffusion as a PyTorch Geometric layer.

Legend: N nodes, B batch, E edges, T types of edge ends, d vertex stalk, e edge stalk.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing


class SheafDiffusionConv(MessagePassing):
    r"""One explicit step of sheaf diffusion with a learned restriction map per type of edge end.

    .. math::
        x_i' = x_i - \eta \sum_{e = \{i, j\}} F_{i \to e}^\top \left( F_{i \to e} x_i - F_{j \to e} x_j \right), \qquad
        F_{i \to e} = R_{t(i, e)}

    that is :math:`x' = x - \eta L x` with the sheaf Laplacian L: what neighbours compare moves together, the part of
    a state in the kernel of its maps stays private.

    Args:
        stalk_dim: size d of a node's state.
        edge_dim: size e of what two neighbours compare.
        num_types: number T of types of edge ends (1: the same map everywhere).
        step: step length η; stable below 2 divided by the largest eigenvalue of L.

    Shapes:
        - x: ``[N, d]``, or ``[N, B, d]`` for a batch of states on one graph;
        - edge_index: ``[2, E]``, each undirected edge stored once (parallel edges are allowed);
        - edge_type: ``[2, E]``, types of the ends at ``edge_index[0]`` and ``edge_index[1]``; may be left out if T = 1;
        - output: the shape of x.

    Raises:
        ValueError: if ``edge_type`` is missing for T > 1 or does not have the shape of ``edge_index``.

    Source: Bodnar et al. 2022 (arXiv 2202.04579), section 3; typed maps as in Sheaf-ADMM (arXiv 2605.31005), section 3.
    """

    def __init__(self, stalk_dim: int, edge_dim: int, num_types: int = 1, step: float = 0.1) -> None:
        super().__init__(aggr="add", node_dim=0)
        self.stalk_dim = stalk_dim
        self.edge_dim = edge_dim
        self.num_types = num_types
        self.step = step
        self.maps = nn.Parameter(torch.empty(num_types, edge_dim, stalk_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw maps with orthonormal rows."""
        super().reset_parameters()
        for one in self.maps.data:
            nn.init.orthogonal_(one)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor | None = None) -> Tensor:
        """Return the states after one diffusion step."""
        return x - self.step * self.laplacian(x, edge_index, edge_type)

    def laplacian(self, x: Tensor, edge_index: Tensor, edge_type: Tensor | None = None) -> Tensor:
        """Return Lx, in the shape of x."""
        if edge_type is None:
            if self.num_types > 1:
                raise ValueError(f"a layer with {self.num_types} types of edge ends needs edge_type, [2, E]")
            edge_type = torch.zeros_like(edge_index)
        if edge_type.shape != edge_index.shape:
            raise ValueError(f"edge_type must have edge_index's shape {list(edge_index.shape)}, got {list(edge_type.shape)}")
        both_ways = torch.cat([edge_index, edge_index.flip(0)], dim=1)
        sender_type, receiver_type = torch.cat([edge_type, edge_type.flip(0)], dim=1)
        return self.propagate(both_ways, x=x, receiver_type=receiver_type, sender_type=sender_type)

    def message(self, x_i: Tensor, x_j: Tensor, receiver_type: Tensor, sender_type: Tensor) -> Tensor:
        """Return the receiver's part of Lx for each directed edge."""
        F_i, F_j = self.maps[receiver_type], self.maps[sender_type]
        if x_i.dim() == 2:
            return self._pull(x_i.unsqueeze(1), x_j.unsqueeze(1), F_i, F_j).squeeze(1)
        return self._pull(x_i, x_j, F_i, F_j)

    @staticmethod
    def _pull(x_i: Tensor, x_j: Tensor, F_i: Tensor, F_j: Tensor) -> Tensor:
        """Return ``F_iᵀ (F_i x_i - F_j x_j)`` for states ``[E, B, d]`` and maps ``[E, e, d]``."""
        return (x_i @ F_i.transpose(1, 2) - x_j @ F_j.transpose(1, 2)) @ F_i

    def __repr__(self) -> str:
        sizes = f"{self.stalk_dim}, {self.edge_dim}, num_types={self.num_types}, step={self.step}"
        return f"{self.__class__.__name__}({sizes})"
