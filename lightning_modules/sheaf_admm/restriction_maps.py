"""Learned restriction maps: how an agent's state is seen from each of its edge ends.

Legend: N agents, B batch, E edges, S slots, d vertex stalk, e edge stalk, r rank, f context features.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from lightning_modules.sheaf_admm.graph import AgentGraph
from lightning_modules.sheaf_admm.laplacian import CellLaplacian, SheafLaplacian, SlotLaplacian
from lightning_modules.sheaf_admm.layers import NORM_EPS, Dense
from lightning_modules.sheaf_admm.paired_laplacian import PairedLaplacian

Kind = Literal["directional", "global", "sudoku", "identity"]
LoraInit = Literal["standard", "legacy"]
Norm = Literal["layer", "rms"]


class RestrictionMaps(nn.Module):
    r"""Restriction maps shared per slot, with an optional low-rank part that depends on each agent's context.

    .. math::
        F_{i,s} = R_s + \sigma(g_{i,s}) \, \frac{\alpha}{r} A_{i,s} B_{i,s}^\top, \qquad
        (A_i, B_i, g_i) = \text{heads}(\mathrm{norm}(f_i))

    (:math:`\sigma(g) = 1` without gate.) Kinds of the base maps R:

    - ``directional``: one map per slot with orthonormal rows (grids);
    - ``global``: one map with orthonormal rows for all ends; A and B still depend on the slot;
    - ``sudoku``: one map per slot, a soft slice: the selector of the slot's own block of the stalk plus noise;
    - ``identity``: fixed F = I, an ablation.

    The maps do not depend on the size of the graph, so a trained module serves any graph with the same slots.

    Args:
        kind: what the base maps are.
        stalk_dim: size d of an agent's state.
        edge_dim: size e of what two neighbours compare; must equal ``stalk_dim`` for ``identity``.
        num_slots: number of slots S of the graphs: 8 directions, or the side of the Sudoku.
        feature_dim: size of the context f; needed with ``lora_rank``.
        lora_rank: rank r of the context-dependent part; 0 leaves it out.
        lora_init: which head starts at zero, so that training starts from R: A (``standard``) or B (``legacy``).
        lora_scale: factor α.
        gated: multiply the low-rank part of each slot by a sigmoid that starts near 0.12 (bias -2).
        norm: normalisation of the heads' input, LayerNorm (``layer``) or RMSNorm (``rms``).
        noise: standard deviation of the soft slice's noise.
        allow_wide_edges: permit ``edge_dim > stalk_dim``, where coordination tends to collapse.

    Raises:
        ValueError: if the sizes or options contradict each other.

    Source: Sheaf-ADMM (arXiv 2605.31005), section 3, appendix, and the released configurations.
    """

    def __init__(
        self,
        kind: Kind,
        stalk_dim: int,
        edge_dim: int,
        num_slots: int = 8,
        feature_dim: int | None = None,
        lora_rank: int = 0,
        lora_init: LoraInit = "standard",
        lora_scale: float = 1.0,
        gated: bool = False,
        norm: Norm = "layer",
        noise: float = 0.01,
        allow_wide_edges: bool = False,
    ) -> None:
        super().__init__()
        _check_names(kind, lora_init, norm)
        _check_sizes(kind, stalk_dim, edge_dim, num_slots, allow_wide_edges)
        _check_lora(kind, feature_dim, lora_rank, gated)
        self.kind = kind
        self.stalk_dim, self.edge_dim, self.num_slots = stalk_dim, edge_dim, num_slots
        self.lora_rank, self.lora_scale = lora_rank, lora_scale
        base = _initial_maps(kind, stalk_dim, edge_dim, num_slots, noise)
        self.base: Tensor
        if kind == "identity":
            self.register_buffer("base", base, persistent=False)
        else:
            self.base = nn.Parameter(base)
        self.gate_head: Dense | None = None
        if lora_rank:
            assert feature_dim is not None
            self.norm = (nn.LayerNorm if norm == "layer" else nn.RMSNorm)(feature_dim, eps=NORM_EPS)
            self.left_head = Dense(feature_dim, num_slots * edge_dim * lora_rank)
            self.right_head = Dense(feature_dim, num_slots * lora_rank * stalk_dim)
            nn.init.zeros_((self.left_head if lora_init == "standard" else self.right_head).weight)
            if gated:
                self.gate_head = Dense(feature_dim, num_slots)
                nn.init.constant_(self.gate_head.bias, -2.0)

    def forward(self, graph: AgentGraph, context: Tensor | None = None, edge_mask: Tensor | None = None) -> SheafLaplacian:
        """Return the Laplacian of these maps on a graph, in the form that is applied fastest.

        Args:
            graph: the agents; its slots must be those of the maps.
            context: the agents' features, ``[N, B, f]``; read only with a low-rank part.
            edge_mask: optional weights of the edges, ``[E]`` or ``[E, B]``.

        Returns:
            A :class:`CellLaplacian` on an unmasked Sudoku graph, a :class:`PairedLaplacian` on a grid and its like, else a
            :class:`SlotLaplacian`. Low-rank maps are applied factor by factor if that costs less than the full maps of
            each agent, ``r (e + d) < e d``.

        Raises:
            ValueError: if the slots differ or the context is missing or of another shape.
        """
        maps, low_rank = self.base, self.factors(graph, context)
        if low_rank is not None and self.lora_rank * (self.edge_dim + self.stalk_dim) >= self.edge_dim * self.stalk_dim:
            maps, low_rank = maps + low_rank[0] @ low_rank[1], None
        if graph.box_shape is not None and edge_mask is None:
            return CellLaplacian(graph, maps, low_rank)
        if graph.partner is not None:
            return PairedLaplacian(graph, maps, low_rank, edge_mask)
        return SlotLaplacian(graph, maps, low_rank, edge_mask)

    def maps(self, graph: AgentGraph, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the dense maps ``(F_u, F_v)`` of all edge ends, each ``[E, 1 or B, e, d]``."""
        return SlotLaplacian(graph, self.base, self.factors(graph, context)).edge_maps()

    def factors(self, graph: AgentGraph, context: Tensor | None = None) -> tuple[Tensor, Tensor] | None:
        """Return the low-rank factors: scaled A ``[N, B, S, e, r]``, Bᵀ ``[N, B, S, r, d]``; None if the rank is 0."""
        if not self.lora_rank:
            return None
        if self.num_slots != graph.num_slots:
            raise ValueError(f"these maps were made for {self.num_slots} slots, the graph has {graph.num_slots}")
        if context is None:
            raise ValueError("restriction maps with lora_rank > 0 need the agents' context: forward(graph, context)")
        feature_dim = self.right_head.in_features
        if context.dim() != 3 or context.shape[0] != graph.num_nodes or context.shape[2] != feature_dim:
            raise ValueError(f"context must have shape [{graph.num_nodes}, B, {feature_dim}], got {list(context.shape)}")
        features = self.norm(context)
        A_NBSer = self.left_head(features).unflatten(-1, (self.num_slots, self.edge_dim, self.lora_rank))
        Bt_NBSrd = self.right_head(features).unflatten(-1, (self.num_slots, self.lora_rank, self.stalk_dim))
        scale: Tensor | float = self.lora_scale / self.lora_rank
        if self.gate_head is not None:
            scale = scale * self.gate_head(features).sigmoid()[..., None, None]
        return A_NBSer * scale, Bt_NBSrd

    def extra_repr(self) -> str:
        sizes = f"stalk_dim={self.stalk_dim}, edge_dim={self.edge_dim}, num_slots={self.num_slots}"
        return f"kind={self.kind!r}, {sizes}, lora_rank={self.lora_rank}"


def _initial_maps(kind: Kind, stalk_dim: int, edge_dim: int, num_slots: int, noise: float) -> Tensor:
    """Draw the base maps, ``[S or 1, e, d]``."""
    if kind == "identity":
        return torch.eye(stalk_dim).unsqueeze(0)
    if kind == "sudoku":
        selectors = torch.eye(num_slots * edge_dim, stalk_dim).view(num_slots, edge_dim, stalk_dim)
        return selectors + noise * torch.randn_like(selectors)
    maps = torch.empty(1 if kind == "global" else num_slots, edge_dim, stalk_dim)
    for one in maps:
        nn.init.orthogonal_(one)
    return maps


def _check_names(kind: str, lora_init: str, norm: str) -> None:
    """Refuse unknown options."""
    for name, value, allowed in (("kind", kind, Kind), ("lora_init", lora_init, LoraInit), ("norm", norm, Norm)):
        if value not in get_args(allowed):
            raise ValueError(f"{name} must be one of {', '.join(get_args(allowed))}, got {value!r}")


def _check_sizes(kind: str, stalk_dim: int, edge_dim: int, num_slots: int, allow_wide_edges: bool) -> None:
    """Refuse stalks that the kind of maps cannot have."""
    if min(stalk_dim, edge_dim, num_slots) < 1:
        raise ValueError(f"sizes must be positive: stalk_dim={stalk_dim}, edge_dim={edge_dim}, num_slots={num_slots}")
    if kind == "identity" and edge_dim != stalk_dim:
        raise ValueError(f"identity maps need edge_dim = stalk_dim, got {edge_dim} and {stalk_dim}")
    if kind == "sudoku" and stalk_dim < num_slots * edge_dim:
        raise ValueError(
            f"soft-slice maps of {num_slots} slots with edge_dim={edge_dim} need stalk_dim >= {num_slots * edge_dim}, "
            f"got {stalk_dim}"
        )
    if kind == "sudoku" and stalk_dim % num_slots:
        raise ValueError(f"stalk_dim must be divisible by the side {num_slots} of the Sudoku, got {stalk_dim}")
    if edge_dim > stalk_dim and not allow_wide_edges:
        raise ValueError(
            f"edge_dim={edge_dim} exceeds stalk_dim={stalk_dim}, where coordination collapses: "
            "choose stalk_dim clearly larger, or set allow_wide_edges=True"
        )


def _check_lora(kind: str, feature_dim: int | None, lora_rank: int, gated: bool) -> None:
    """Refuse low-rank options that contradict each other."""
    if lora_rank < 0:
        raise ValueError(f"lora_rank must be 0 (off) or positive, got {lora_rank}")
    if lora_rank and kind == "identity":
        raise ValueError("identity maps are fixed: set lora_rank=0, or choose another kind")
    if lora_rank and feature_dim is None:
        raise ValueError("lora_rank > 0 needs feature_dim, the size of the agents' context")
    if gated and not lora_rank:
        raise ValueError("gated=True needs lora_rank > 0: there is nothing to gate")
