"""Sheaf Laplacians of an agent graph, applied without ever building the matrix.

Legend: N agents, B batch, E edges, S slots, d vertex stalk, e edge stalk, r rank.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_modules.sheaf_admm.graph import AgentGraph

_BROADCAST_BELOW = 256


class SheafLaplacian:
    r"""Laplacian of a cellular sheaf with any restriction map at any edge end.

    .. math::
        (\delta z)_e = F_{u \to e} z_u - F_{v \to e} z_v, \qquad
        (\delta^\top r)_i = \sum_{e: u(e) = i} F_{u \to e}^\top r_e - \sum_{e: v(e) = i} F_{v \to e}^\top r_e, \qquad
        L = \delta^\top \delta

    A masked edge has residual zero, so that both of its ends stop talking: δ is replaced by mask·δ.

    Args:
        graph: the agents and their edges.
        F_u: maps at the ends ``u``, ``[E, 1 or B, e, d]``.
        F_v: maps at the ends ``v``, same shape.
        edge_mask: optional weights of the edges, ``[E]`` or ``[E, B]``; 0 drops an edge.

    Raises:
        ValueError: if the maps or the mask do not fit the graph.

    Source: Sheaf-ADMM (arXiv 2605.31005), section 3.
    """

    def __init__(self, graph: AgentGraph, F_u: Tensor, F_v: Tensor, edge_mask: Tensor | None = None) -> None:
        if F_u.shape != F_v.shape or F_u.dim() != 4 or F_u.shape[0] != graph.num_edges:
            raise ValueError(
                f"restriction maps must both have shape [{graph.num_edges}, 1 or B, e, d], "
                f"got {list(F_u.shape)} and {list(F_v.shape)}"
            )
        self._set(graph, F_u.shape[-2], F_u.shape[-1], edge_mask)
        self._F_u, self._F_v = F_u, F_v

    def _set(self, graph: AgentGraph, edge_dim: int, stalk_dim: int, edge_mask: Tensor | None) -> None:
        """Keep what all Laplacians share and check the mask."""
        if edge_mask is not None and (edge_mask.dim() not in (1, 2) or edge_mask.shape[0] != graph.num_edges):
            raise ValueError(
                f"edge_mask must have shape [{graph.num_edges}] or [{graph.num_edges}, B], one weight per edge, "
                f"got {list(edge_mask.shape)}"
            )
        self.graph, self.edge_mask = graph, edge_mask
        self.num_nodes, self.edge_dim, self.stalk_dim = graph.num_nodes, edge_dim, stalk_dim

    def arranged(self, z_NBd: Tensor) -> Tensor:
        """Return the same states in the memory order that products with this Laplacian prefer."""
        return z_NBd

    def delta(self, z_NBd: Tensor) -> Tensor:
        """Return the disagreement δz of each edge, ``[E, B, e]``."""
        u, v = self.graph.edge_index
        return self._masked(_apply(self._F_u, z_NBd.index_select(0, u)) - _apply(self._F_v, z_NBd.index_select(0, v)))

    def delta_t(self, r_EBe: Tensor) -> Tensor:
        """Return the adjoint δᵀr, ``[N, B, d]``."""
        u, v = self.graph.edge_index
        r_EBe = self._masked(r_EBe)
        z_NBd = r_EBe.new_zeros(self.num_nodes, r_EBe.shape[1], self.stalk_dim)
        z_NBd = z_NBd.index_add_(0, u, _apply_transposed(self._F_u, r_EBe))
        return z_NBd.index_add_(0, v, _apply_transposed(self._F_v, r_EBe), alpha=-1)

    def matvec(self, z_NBd: Tensor) -> Tensor:
        """Return Lz, ``[N, B, d]``."""
        return self.delta_t(self.delta(z_NBd))

    def energy(self, z_NBd: Tensor) -> Tensor:
        """Return ½‖δz‖² of each batch element, ``[B]``."""
        return 0.5 * self.delta(z_NBd).square().sum(dim=(0, 2))

    def edge_maps(self) -> tuple[Tensor, Tensor]:
        """Return the dense maps ``(F_u, F_v)`` of all edge ends, each ``[E, 1 or B, e, d]``, without the mask."""
        return self._F_u, self._F_v

    def with_edge_mask(self, edge_mask: Tensor) -> SheafLaplacian:
        """Return the Laplacian with its edges multiplied by ``edge_mask`` (``[E]`` or ``[E, B]``)."""
        return SheafLaplacian(self.graph, self._F_u, self._F_v, self._combined(edge_mask))

    def dense(self) -> Tensor:
        """Return the matrix L for agent-major vectors, ``[1 or B, N*d, N*d]``; for tests and small graphs only."""
        F_u, F_v = self.edge_maps()
        u, v = self.graph.edge_index
        edge = torch.arange(self.graph.num_edges, device=u.device)
        if self.edge_mask is not None:
            mask = self._mask_like(F_u).unsqueeze(-1)
            F_u, F_v = F_u * mask, F_v * mask
        delta = F_u.new_zeros(F_u.shape[1], self.graph.num_edges, self.edge_dim, self.num_nodes, self.stalk_dim)
        delta[:, edge, :, u] = F_u
        delta[:, edge, :, v] = -F_v
        delta = delta.flatten(3).flatten(1, 2)
        return delta.transpose(1, 2) @ delta

    def _masked(self, r_EBe: Tensor) -> Tensor:
        """Weight the edges."""
        return r_EBe if self.edge_mask is None else r_EBe * self._mask_like(r_EBe)

    def _mask_like(self, reference: Tensor) -> Tensor:
        """Return the mask as ``[E, 1 or B, 1]`` in the dtype of the reference."""
        assert self.edge_mask is not None
        mask = self.edge_mask.to(reference.dtype)
        return mask.unsqueeze(-1) if mask.dim() == 2 else mask[:, None, None]

    def _combined(self, edge_mask: Tensor) -> Tensor:
        """Multiply a further mask onto the present one."""
        if self.edge_mask is None:
            return edge_mask
        old, new = (mask.unsqueeze(-1) if mask.dim() == 1 else mask for mask in (self.edge_mask, edge_mask))
        return old * new


class SlotLaplacian(SheafLaplacian):
    r"""Sheaf Laplacian whose maps belong to the agents' slots, with an optional low-rank part per agent and sample.

    .. math::
        F_{i,s} = R_s + A_{i,s} B_{i,s}^\top, \qquad y_{i,s} = F_{i,s} z_i, \qquad
        (\delta z)_e = y_{u, s_u(e)} - y_{v, s_v(e)}

    Each agent is projected once for all of its slots (one GEMM with the stacked maps ``[S*e, d]``), so only the short
    vectors y are gathered over edges, and R, A, Bᵀ are applied factor by factor.

    Args:
        graph: the agents and their edges.
        maps: R, shared by all agents, ``[S, e, d]`` (``[1, e, d]`` if all slots share one map), or full maps of each
            agent and sample, ``[N, B, S, e, d]``.
        low_rank: optional pair ``(A, Bᵀ)`` of shapes ``[N, B, S, e, r]`` and ``[N, B, S, r, d]``, any scale already
            in A; goes with shared ``maps`` only.
        edge_mask: optional weights of the edges, ``[E]`` or ``[E, B]``.

    Raises:
        ValueError: if the number of slots of maps and graph differ, or the mask has the wrong length.

    Source: Sheaf-ADMM (arXiv 2605.31005), section 3 and appendix (context-dependent maps).
    """

    def __init__(
        self,
        graph: AgentGraph,
        maps: Tensor,
        low_rank: tuple[Tensor, Tensor] | None = None,
        edge_mask: Tensor | None = None,
    ) -> None:
        slots, agents = graph.num_slots, graph.num_nodes
        if maps.dim() not in (3, 5) or maps.shape[-3] not in (1, slots) or (maps.dim() == 5 and maps.shape[0] != agents):
            raise ValueError(
                f"slot maps of this graph have shape [{slots} or 1, e, d] or [{agents}, B, {slots}, e, d], got {list(maps.shape)}"
            )
        if low_rank is not None and (maps.dim() == 5 or any((f.shape[0], f.shape[2]) != (agents, slots) for f in low_rank)):
            raise ValueError(
                f"low-rank factors go with shared maps and start with [{agents}, B, {slots}], got "
                f"{list(low_rank[0].shape)} and {list(low_rank[1].shape)} beside maps {list(maps.shape)}"
            )
        self._set(graph, maps.shape[-2], maps.shape[-1], edge_mask)
        self.maps, self.low_rank = maps, low_rank

    def project(self, z_NBd: Tensor) -> Tensor:
        """Return y, each agent's state seen through its slots, ``[N, B, S, e]`` (S = 1 if the slots share one map)."""
        if self.maps.dim() == 5:
            return _project_stack(self.maps, z_NBd)
        y_NBSe = (z_NBd @ self.maps.flatten(0, 1).t()).unflatten(-1, (-1, self.edge_dim))
        if self.low_rank is None:
            return y_NBSe
        A_NBSer, Bt_NBSrd = self.low_rank
        return y_NBSe + (A_NBSer * _project_stack(Bt_NBSrd, z_NBd).unsqueeze(-2)).sum(-1)

    def lift(self, y_NBSe: Tensor) -> Tensor:
        """Return the adjoint of :meth:`project`, ``[N, B, d]``."""
        if self.maps.dim() == 5:
            return _lift_stack(self.maps, y_NBSe)
        shared = y_NBSe.sum(2) if self.maps.shape[0] == 1 else y_NBSe.flatten(2)
        z_NBd = shared @ self.maps.flatten(0, 1)
        if self.low_rank is None:
            return z_NBd
        A_NBSer, Bt_NBSrd = self.low_rank
        return z_NBd + _lift_stack(Bt_NBSrd, (A_NBSer * y_NBSe.unsqueeze(-1)).sum(-2))

    def delta(self, z_NBd: Tensor) -> Tensor:
        """Return the disagreement δz of each edge, ``[E, B, e]``."""
        y = self.project(z_NBd).transpose(1, 2).flatten(0, 1)
        u, v = self._ends()
        return self._masked(y.index_select(0, u) - y.index_select(0, v))

    def delta_t(self, r_EBe: Tensor) -> Tensor:
        """Return the adjoint δᵀr, ``[N, B, d]``."""
        u, v = self._ends()
        r_EBe = self._masked(r_EBe)
        slots = self._slots()
        y = r_EBe.new_zeros(self.num_nodes * slots, *r_EBe.shape[1:])
        y = y.index_add_(0, u, r_EBe).index_add_(0, v, r_EBe, alpha=-1)
        return self.lift(y.unflatten(0, (self.num_nodes, slots)).transpose(1, 2))

    def edge_maps(self) -> tuple[Tensor, Tensor]:
        """Return the dense maps ``(F_u, F_v)`` of all edge ends, each ``[E, 1 or B, e, d]``, without the mask."""
        if self.maps.dim() == 3 and self.low_rank is None:
            maps = self.maps.expand(self.graph.num_slots, -1, -1).unsqueeze(1)
            return maps[self.graph.slot_u], maps[self.graph.slot_v]
        F_NBSed = self.maps if self.low_rank is None else self.maps + self.low_rank[0] @ self.low_rank[1]
        flat = F_NBSed.transpose(1, 2).flatten(0, 1)
        u, v = self._ends()
        return flat.index_select(0, u), flat.index_select(0, v)

    def with_edge_mask(self, edge_mask: Tensor) -> SheafLaplacian:
        """Return the Laplacian with its edges multiplied by ``edge_mask`` (``[E]`` or ``[E, B]``)."""
        return SlotLaplacian(self.graph, self.maps, self.low_rank, self._combined(edge_mask))

    def _slots(self) -> int:
        """Number of different projections of an agent."""
        return self.maps.shape[-3] if self.low_rank is None else self.graph.num_slots

    def _ends(self) -> tuple[Tensor, Tensor]:
        """Rows of the flattened projections ``[N*S, B, e]`` that meet in each edge."""
        if self._slots() == 1:
            return self.graph.edge_index[0], self.graph.edge_index[1]
        return self.graph.end_u, self.graph.end_v


class CellLaplacian(SlotLaplacian):
    r"""Slot Laplacian of the Sudoku graph, with cell means in the place of edges.

    The three agents that see a cell form a clique, whose Laplacian is :math:`3I - 11^\top`. With ȳ the mean of the
    three copies of a cell,

    .. math::
        (Lz)_i = 3 \sum_s F_{i,s}^\top (y_{i,s} - \bar y_{c(i,s)}), \qquad
        \tfrac12 \lVert \delta z \rVert^2 = \tfrac32 \lVert y - \bar y \rVert^2,

    so a product costs two GEMMs with the stacked maps and sums over views of one tensor; nothing is gathered.

    Args:
        graph: a graph made by :meth:`AgentGraph.sudoku`.
        maps: slot maps as in :class:`SlotLaplacian`.
        low_rank: optional factors as in :class:`SlotLaplacian`.

    Raises:
        ValueError: if the graph is no Sudoku graph or the maps do not fit it.

    Source: Sheaf-ADMM (arXiv 2605.31005), section 3; the closed form of the clique is our own.
    """

    def __init__(self, graph: AgentGraph, maps: Tensor, low_rank: tuple[Tensor, Tensor] | None = None) -> None:
        super().__init__(graph, maps, low_rank)
        if graph.box_shape is None:
            raise ValueError("CellLaplacian needs a graph made by AgentGraph.sudoku; SlotLaplacian takes any graph")
        self._box_rows, self._box_cols = graph.box_shape

    def matvec(self, z_NBd: Tensor) -> Tensor:
        """Return Lz, ``[N, B, d]``."""
        return 3.0 * self.lift(self._centered(self.project(z_NBd)))

    def energy(self, z_NBd: Tensor) -> Tensor:
        """Return ½‖δz‖² of each batch element, ``[B]``."""
        return 1.5 * self._centered(self.project(z_NBd)).square().sum(dim=(0, 2, 3))

    def _centered(self, y_NBSe: Tensor) -> Tensor:
        """Subtract from each copy of a cell the mean of its three copies.

        A cell's row is (box row R, row i in the box), its column is (box column C, column j in the box). The three
        kinds of agents meet in the frame (R, i, batch, C, j, e); either permutation into it is its own inverse.
        """
        side, batch, edge_dim = self.graph.num_slots, y_NBSe.shape[1], self.edge_dim
        rows, cols = self._box_rows, self._box_cols
        y = y_NBSe.expand(-1, -1, side, -1)
        by_row = y[:side].reshape(cols, rows, batch, rows, cols, edge_dim)
        by_column = y[side : 2 * side].reshape(rows, cols, batch, cols, rows, edge_dim)
        by_box = y[2 * side :].reshape(cols, rows, batch, rows, cols, edge_dim)
        column_order, box_order = (3, 4, 2, 0, 1, 5), (0, 3, 2, 1, 4, 5)
        mean = (by_row + by_column.permute(column_order) + by_box.permute(box_order)) / 3.0
        parts = (by_row - mean, by_column - mean.permute(column_order), by_box - mean.permute(box_order))
        return torch.cat([part.reshape(side, batch, side, edge_dim) for part in parts])


def _prefers_broadcast(maps: Tensor) -> bool:
    """Say whether a matrix product per state is so small that its overhead on the CPU exceeds its arithmetic."""
    return maps.device.type == "cpu" and maps.shape[-1] * maps.shape[-2] < _BROADCAST_BELOW


def _apply(F_EBed: Tensor, z_EBd: Tensor) -> Tensor:
    """Multiply each edge's state by its map, ``[E, B, e]``."""
    if F_EBed.shape[1] == 1:
        return torch.bmm(z_EBd, F_EBed[:, 0].transpose(1, 2))
    if _prefers_broadcast(F_EBed):
        return (F_EBed * z_EBd.unsqueeze(-2)).sum(-1)
    return (F_EBed @ z_EBd.unsqueeze(-1)).squeeze(-1)


def _apply_transposed(F_EBed: Tensor, r_EBe: Tensor) -> Tensor:
    """Multiply each edge's residual by its transposed map, ``[E, B, d]``."""
    if F_EBed.shape[1] == 1:
        return torch.bmm(r_EBe, F_EBed[:, 0])
    if _prefers_broadcast(F_EBed):
        return (F_EBed * r_EBe.unsqueeze(-1)).sum(-2)
    return (r_EBe.unsqueeze(-2) @ F_EBed).squeeze(-2)


def _project_stack(maps_NBSed: Tensor, z_NBd: Tensor) -> Tensor:
    """Multiply each agent's state by its own stack of maps, ``[N, B, S, e]``."""
    if _prefers_broadcast(maps_NBSed):
        return (maps_NBSed * z_NBd[:, :, None, None]).sum(-1)
    y_NBc = (maps_NBSed.flatten(2, 3) @ z_NBd.unsqueeze(-1)).squeeze(-1)
    return y_NBc.unflatten(-1, maps_NBSed.shape[2:4])


def _lift_stack(maps_NBSed: Tensor, y_NBSe: Tensor) -> Tensor:
    """Return the adjoint of :func:`_project_stack`, ``[N, B, d]``; one row-vector product is fast at any size."""
    return (y_NBSe.flatten(2).unsqueeze(-2) @ maps_NBSed.flatten(2, 3)).squeeze(-2)
