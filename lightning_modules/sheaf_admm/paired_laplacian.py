"""The sheaf Laplacian of a graph in which every slot of an agent holds at most one edge, as the directions of a grid do.

Legend: N agents, B batch, S slots, d vertex stalk, e edge stalk, r rank.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_modules.sheaf_admm.graph import AgentGraph
from lightning_modules.sheaf_admm.laplacian import SlotLaplacian


class PairedLaplacian(SlotLaplacian):
    r"""Slot Laplacian whose edge ends come in pairs.

    With :math:`\pi` the involution that sends an edge end to the other end of its edge, and an end without edge to itself,

    .. math::
        (Lz)_i = \sum_s F_{i,s}^\top \left( y_{i,s} - y_{\pi(i,s)} \right), \qquad y_{i,s} = F_{i,s} z_i,

    so a product needs one gather and no scatter, and its backward pass is the same product. All products run with agents and batch
    as the innermost axes in memory, where short stalks cost nothing whatever the size of the batch; :meth:`arranged` brings states
    into that order once.

    Args:
        graph: a graph with :attr:`AgentGraph.partner`, such as :meth:`AgentGraph.grid`.
        maps: slot maps as in :class:`SlotLaplacian`.
        low_rank: optional factors as in :class:`SlotLaplacian`.
        edge_mask: optional weights of the edges, ``[E]`` or ``[E, B]``.

    Raises:
        ValueError: if a slot of the graph holds several edges, or the maps do not fit it.

    Source: Sheaf-ADMM (arXiv 2605.31005), section 3; the paired form is our own.
    """

    def __init__(
        self,
        graph: AgentGraph,
        maps: Tensor,
        low_rank: tuple[Tensor, Tensor] | None = None,
        edge_mask: Tensor | None = None,
    ) -> None:
        super().__init__(graph, maps, low_rank, edge_mask)
        if graph.partner is None:
            raise ValueError("PairedLaplacian needs at most one edge a slot, as on a grid; SlotLaplacian takes any graph")
        self._maps_SedNB = None if maps.dim() == 3 else _agents_last(maps)
        if low_rank is not None:
            self._A_SerNB, self._Bt_SrdNB = (_agents_last(factor) for factor in low_rank)
        self._partner = self._partner_rows(graph.partner.view(-1, graph.num_slots).t())
        self._weight = None if edge_mask is None else self._end_weights(edge_mask)

    def arranged(self, z_NBd: Tensor) -> Tensor:
        """Return the same states with agents and batch innermost in memory."""
        return z_NBd.permute(2, 0, 1).contiguous().permute(1, 2, 0)

    def matvec(self, z_NBd: Tensor) -> Tensor:
        """Return Lz, ``[N, B, d]``."""
        y_SeNB = self._projected(z_NBd.permute(2, 0, 1))
        others = y_SeNB.flatten(0, 2).index_select(0, self._partner)
        gap_SeNB = y_SeNB - others.view(-1, *y_SeNB.shape[1:])
        if self._weight is not None:
            gap_SeNB = gap_SeNB * self._weight
        return self._lifted(gap_SeNB).permute(1, 2, 0)

    def with_edge_mask(self, edge_mask: Tensor) -> PairedLaplacian:
        """Return the Laplacian with its edges multiplied by ``edge_mask`` (``[E]`` or ``[E, B]``)."""
        return PairedLaplacian(self.graph, self.maps, self.low_rank, self._combined(edge_mask))

    def _projected(self, z_dNB: Tensor) -> Tensor:
        """Each agent's state seen through its slots, ``[S, e, N, B]`` (S = 1 if the slots share one map)."""
        if self._maps_SedNB is not None:
            return (self._maps_SedNB * z_dNB).sum(2)
        y_SeNB = (self.maps.flatten(0, 1) @ z_dNB.flatten(1)).view(-1, self.edge_dim, *z_dNB.shape[1:])
        if self.low_rank is None:
            return y_SeNB
        small_SrNB = (self._Bt_SrdNB * z_dNB).sum(2)
        return y_SeNB + (self._A_SerNB * small_SrNB.unsqueeze(1)).sum(2)

    def _lifted(self, y_SeNB: Tensor) -> Tensor:
        """The adjoint of :meth:`_projected`, ``[d, N, B]``."""
        if self._maps_SedNB is not None:
            return (self._maps_SedNB * y_SeNB.unsqueeze(2)).sum((0, 1))
        shared_cNB = y_SeNB.sum(0) if self.maps.shape[0] == 1 else y_SeNB.flatten(0, 1)
        z_dNB = (self.maps.flatten(0, 1).t() @ shared_cNB.flatten(1)).view(-1, *shared_cNB.shape[1:])
        if self.low_rank is None:
            return z_dNB
        small_SrNB = (self._A_SerNB * y_SeNB.unsqueeze(2)).sum(1)
        return z_dNB + (self._Bt_SrdNB * small_SrNB.unsqueeze(2)).sum((0, 1))

    def _partner_rows(self, partner_SN: Tensor) -> Tensor:
        """Row of the other end in the flattened projections ``[S, e, N]``, for every slot, coordinate and agent."""
        agent_SN, slot_SN = partner_SN // self.graph.num_slots, partner_SN % self.graph.num_slots
        if self._slots() == 1:
            slot_SN = torch.zeros_like(slot_SN)
        coordinate_e1 = torch.arange(self.edge_dim, device=partner_SN.device).unsqueeze(1)
        return ((slot_SN.unsqueeze(1) * self.edge_dim + coordinate_e1) * self.num_nodes + agent_SN.unsqueeze(1)).flatten()

    def _end_weights(self, edge_mask: Tensor) -> Tensor:
        """The squared mask at every edge end, ``[S, 1, N, 1 or B]``."""
        mask_EB = edge_mask if edge_mask.dim() == 2 else edge_mask.unsqueeze(1)
        mask_EB = mask_EB.to(self.maps).square()
        weight = mask_EB.new_zeros(self.num_nodes * self.graph.num_slots, mask_EB.shape[1])
        weight[self.graph.end_u] = weight[self.graph.end_v] = mask_EB
        return weight.view(self.num_nodes, self.graph.num_slots, 1, -1).permute(1, 2, 0, 3)


def _agents_last(maps_NBSxy: Tensor) -> Tensor:
    """Bring agents and batch to the end, ``[S, x, y, N, B]``."""
    return maps_NBSxy.permute(2, 3, 4, 0, 1).contiguous()
