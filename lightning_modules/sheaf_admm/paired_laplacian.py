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

    so a product needs one gather and no scatter, and its backward pass is the same product. All products run with the batch as the
    innermost axis in memory, where the short stalks cost nothing; :meth:`arranged` brings states into that order once.

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
        self._maps_NSedB = None if maps.dim() == 3 else maps.permute(0, 2, 3, 4, 1).contiguous()
        if low_rank is not None:
            self._A_NSerB, self._Bt_NSrdB = (factor.permute(0, 2, 3, 4, 1).contiguous() for factor in low_rank)
        slots = self._slots()
        self._partner = graph.partner if slots > 1 else graph.partner // graph.num_slots
        self._weight = None if edge_mask is None else self._end_weights(edge_mask)

    def arranged(self, z_NBd: Tensor) -> Tensor:
        """Return the same states with the batch innermost in memory."""
        return z_NBd.transpose(1, 2).contiguous().transpose(1, 2)

    def matvec(self, z_NBd: Tensor) -> Tensor:
        """Return Lz, ``[N, B, d]``."""
        z_NdB = z_NBd.transpose(1, 2)
        y_NSeB = self._projected(z_NdB)
        others = y_NSeB.flatten(0, 1).index_select(0, self._partner)
        gap_NSeB = y_NSeB - others.view(self.num_nodes, self.graph.num_slots, *y_NSeB.shape[2:])
        if self._weight is not None:
            gap_NSeB = gap_NSeB * self._weight
        return self._lifted(gap_NSeB).transpose(1, 2)

    def with_edge_mask(self, edge_mask: Tensor) -> PairedLaplacian:
        """Return the Laplacian with its edges multiplied by ``edge_mask`` (``[E]`` or ``[E, B]``)."""
        return PairedLaplacian(self.graph, self.maps, self.low_rank, self._combined(edge_mask))

    def _projected(self, z_NdB: Tensor) -> Tensor:
        """Each agent's state seen through its slots, ``[N, S, e, B]`` (S = 1 if the slots share one map)."""
        if self._maps_NSedB is not None:
            return (self._maps_NSedB * z_NdB[:, None, None]).sum(3)
        flat = self.maps.flatten(0, 1).expand(self.num_nodes, -1, -1)
        y_NSeB = torch.bmm(flat, z_NdB).unflatten(1, (-1, self.edge_dim))
        if self.low_rank is None:
            return y_NSeB
        small_NSrB = (self._Bt_NSrdB * z_NdB[:, None, None]).sum(3)
        return y_NSeB + (self._A_NSerB * small_NSrB[:, :, None]).sum(3)

    def _lifted(self, y_NSeB: Tensor) -> Tensor:
        """The adjoint of :meth:`_projected`, ``[N, d, B]``."""
        if self._maps_NSedB is not None:
            return (self._maps_NSedB * y_NSeB.unsqueeze(3)).sum((1, 2))
        shared_NcB = y_NSeB.sum(1) if self.maps.shape[0] == 1 else y_NSeB.flatten(1, 2)
        z_NdB = torch.bmm(self.maps.flatten(0, 1).t().expand(self.num_nodes, -1, -1), shared_NcB)
        if self.low_rank is None:
            return z_NdB
        small_NSrB = (self._A_NSerB * y_NSeB.unsqueeze(3)).sum(2)
        return z_NdB + (self._Bt_NSrdB * small_NSrB.unsqueeze(3)).sum((1, 2))

    def _end_weights(self, edge_mask: Tensor) -> Tensor:
        """The squared mask at every edge end, ``[N, S, 1, 1 or B]``."""
        mask_EB = edge_mask if edge_mask.dim() == 2 else edge_mask.unsqueeze(1)
        weight = mask_EB.to(self.maps).new_zeros(self.num_nodes * self.graph.num_slots, mask_EB.shape[1])
        weight[self.graph.end_u] = weight[self.graph.end_v] = mask_EB.to(self.maps).square()
        return weight.view(self.num_nodes, self.graph.num_slots, 1, -1)
