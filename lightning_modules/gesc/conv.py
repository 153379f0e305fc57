"""Attention over complex messages with self-interference cancelled, as a PyTorch Geometric layer.

Legend: N nodes, E edges (edge j → i: source j, target i), M heads, d features.
"""

from __future__ import annotations

import math
import warnings
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import softmax

from lightning_modules.gesc.complex_layers import (
    GaugeNorm,
    ModReLU,
    SplitNorm,
    as_complex,
    check_precision,
    complex_parameter,
    uniform_by_fan_in_,
)
from lightning_modules.gesc.connection import check_phase_length
from lightning_modules.gesc.edge_kernels import cancelled_attention
from lightning_modules.gesc.interference import GATES, Gate, alignment, gate_value, parallel_part, unit
from lightning_modules.gesc.sorted_edges import SortedEdges

Norm = Literal["gauge", "split"]
NORMS = {"gauge": GaugeNorm, "split": SplitNorm, None: nn.Identity}


class EdgeTerms(NamedTuple):
    """What the plain formulation holds per edge and head.

    Attributes:
        transported: t, ``[E, M, d]``.
        cancelled: r, ``[E, M, d]``.
        mixed: b, ``[E, M, d]``.
        logit: a, ``[E, M]`` real.
        gate: k, ``[E]`` real.
    """

    transported: Tensor
    cancelled: Tensor
    mixed: Tensor
    logit: Tensor
    gate: Tensor


class GESCConv(MessagePassing):
    r"""Gauge-equivariant attention with self-interference cancellation (SIC).

    With :math:`\langle a, b \rangle = \sum_k \overline{a_k} b_k` and the transport :math:`U_{ij} = e^{i \theta_{ij}}`, for each
    edge j → i and head m:

    .. math::
        t &= U_{ij} W_m h_j, \qquad
        p = h_i \frac{\langle h_i, t \rangle}{\max(\lVert h_i \rVert^2, 10^{-6})}, \qquad
        r = t - s\, p \\
        a &= \gamma\, |\langle Q_m h_i, r \rangle| / \sqrt{d}, \qquad
        \alpha = \operatorname{softmax}_j a, \qquad
        b = g\, r + (1 - g)\, t \\
        h_i' &= \operatorname{norm} \Bigl( h_i + \sum_m \sum_j \alpha\, k_{ij}\, b \Bigr), \qquad
        h_i'' = \operatorname{modReLU}(h_i')

    g is the sigmoid of a learned scalar, and b = t - η p with η = g s (:attr:`eta`). The gate k reads the alignment c of the two
    states, see :func:`interference.gate_value`. With gate ``hard``, ``soft`` or ``none`` and norm ``gauge`` or None the layer is
    equivariant: :math:`h_i \to e^{i \varphi_i} h_i,\ \theta_{ij} \to \theta_{ij} + \varphi_i - \varphi_j` turns the output by
    :math:`e^{i \varphi_i}`. As :math:`\lVert P_i b \rVert = |1 - \eta| \lVert P_i t \rVert`, the repeated part shrinks for
    0 < η < 2.

    ``impl="reference"`` gathers the states of every edge and computes as written. ``impl="fused"`` gives the same with node tensors
    and one complex scalar per edge and head: SIC is Hermitian, so it moves to the query,
    :math:`\langle Q h_i, r \rangle = U_{ij} \langle (I - s P_i) Q h_i, W h_j \rangle`, and to the sum,
    :math:`\sum_j w_j b_j = (I - \eta P_i) \sum_j w_j t_j`.

    Args:
        channels: features d.
        heads: M; heads are summed.
        sic: strength s of the cancellation.
        gamma: γ, inverse temperature of the attention.
        attn_dropout: dropout on α, without renormalisation.
        gate: ``hard`` (sign of c), ``soft`` (sigmoid of c), ``none``, or ``real`` (sign of the cosine of the real parts; not
            equivariant).
        norm: ``gauge``, ``split`` (not equivariant) or None.
        act: end with modReLU.
        impl: ``fused`` or ``reference``.
        gate_sharpness: β of the soft gate.

    Shapes:
        - h: ``[N, d]`` complex;
        - edge_index: ``[2, E]``, rows j and i; parallel edges are allowed; self-loops are not added;
        - phase: θ, ``[E]`` real, or None for zero; a connection is antisymmetric (:func:`connection.check_antisymmetric`);
        - output: ``[N, d]`` complex, and with ``return_attention`` the pair of it and α without dropout, ``[E, M]``.

    Raises:
        ValueError: on an unknown option, a real or half-precision h, or phases that are not one per edge.

    Source: Choi, Choi, Kang, ICML 2026 (arXiv 2511.16062) and the authors' program; the phase, the ``hard`` gate and the ``gauge``
    norm are reconstructed.
    """

    def __init__(
        self,
        channels: int,
        heads: int = 4,
        sic: float = 1.0,
        gamma: float = 0.1,
        attn_dropout: float = 0.2,
        gate: Gate = "hard",
        norm: Norm | None = "gauge",
        act: bool = True,
        impl: Literal["fused", "reference"] = "fused",
        gate_sharpness: float = 1.0,
    ) -> None:
        super().__init__(aggr="add", node_dim=0)
        _check_options(channels, heads, gamma, attn_dropout, gate, norm, impl)
        if not 0 <= sic <= 2:
            warnings.warn(
                f"sic={sic} is outside [0, 2]: the parallel part grows instead of shrinking when eta = g * sic > 2 or < 0",
                stacklevel=2,
            )
        self.channels, self.heads, self.sic, self.gamma, self.attn_dropout = channels, heads, sic, gamma, attn_dropout
        self.gate, self.gate_sharpness, self.impl = gate, gate_sharpness, impl
        self.weight = complex_parameter(heads, channels, channels)
        self.query = complex_parameter(heads, channels, channels)
        self.mix = nn.Parameter(torch.empty(()))
        self.norm = NORMS[norm]()
        self.act = ModReLU(channels) if act else nn.Identity()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw W and Q uniformly by their fan-in; g starts at sigmoid(0.5)."""
        super().reset_parameters()
        uniform_by_fan_in_(self.weight, self.channels)
        uniform_by_fan_in_(self.query, self.channels)
        nn.init.constant_(self.mix, 0.5)
        if isinstance(self.act, ModReLU):
            self.act.reset_parameters()

    @property
    def eta(self) -> Tensor:
        """Effective strength η = g s of the cancellation, a scalar."""
        return self.sic * torch.sigmoid(self.mix)

    def forward(
        self,
        h: Tensor,
        edge_index: Tensor,
        phase: Tensor | None = None,
        return_attention: bool = False,
        edges: SortedEdges | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return the new states.

        Args:
            h: states.
            edge_index: edges.
            phase: θ of each edge.
            return_attention: return α too.
            edges: ``SortedEdges.of(edge_index, N)``, to sort once for several layers.
        """
        self._check(h, edge_index, phase)
        if self.impl == "reference":
            update, alpha_EM = self._reference(h, edge_index, phase)
        else:
            update, alpha_EM = self._fused(h, SortedEdges.of(edge_index, len(h)) if edges is None else edges, phase)
        out = self.act(self.norm(h + update))
        return (out, alpha_EM) if return_attention else out

    def edge_terms(self, h_i: Tensor, h_j: Tensor, phase: Tensor | None) -> EdgeTerms:
        """Return t, r, b, a and k of edges whose targets and sources have the states ``[E, d]`` given."""
        transport_E1 = None if phase is None else torch.polar(torch.ones_like(phase), phase).to(h_i.dtype).unsqueeze(-1)
        transported_EMd = torch.einsum("mkd,ed->emk", as_complex(self.weight), h_j)
        if transport_E1 is not None:
            transported_EMd = transport_E1.unsqueeze(-1) * transported_EMd
        parallel_EMd = parallel_part(h_i.unsqueeze(1), transported_EMd)
        cancelled_EMd = transported_EMd - self.sic * parallel_EMd
        query_EMd = torch.einsum("mkd,ed->emk", as_complex(self.query), h_i)
        logit_EM = self.gamma / math.sqrt(self.channels) * (query_EMd.conj() * cancelled_EMd).sum(-1).abs()
        share = torch.sigmoid(self.mix)
        mixed_EMd = share * cancelled_EMd + (1 - share) * transported_EMd
        if self.gate == "real":
            alignment_E = (unit(h_i.real) * unit(h_j.real)).sum(-1)
        else:
            carried_Ed = h_j if transport_E1 is None else transport_E1 * h_j
            alignment_E = (unit(h_i).conj() * unit(carried_Ed)).sum(-1).real
        gate_E = gate_value(alignment_E, self.gate, self.gate_sharpness)
        return EdgeTerms(transported_EMd, cancelled_EMd, mixed_EMd, logit_EM, gate_E)

    def edge_update(
        self, h_i: Tensor, h_j: Tensor, phase: Tensor | None, index: Tensor, ptr: Tensor | None, size_i: int | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return α, k and b of each edge."""
        terms = self.edge_terms(h_i, h_j, phase)
        return softmax(terms.logit, index, ptr, size_i), terms.gate, terms.mixed

    def message(self, alpha: Tensor, gate: Tensor, mixed: Tensor) -> Tensor:
        """Return the message of each edge, summed over heads, ``[E, d]``."""
        weight_EM = functional.dropout(alpha, self.attn_dropout, self.training) * gate.unsqueeze(-1)
        return (weight_EM.unsqueeze(-1) * mixed).sum(1)

    def edge_gate(self, h: Tensor, edges: SortedEdges, phase: Tensor | None = None) -> Tensor:
        """Return k of each edge, ``[E]``, in the order of ``edges``, which is that of ``phase`` too."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.gate == "soft"):
            alignment_E = alignment(h.real, edges) if self.gate == "real" else alignment(h, edges, phase)
            return gate_value(alignment_E, self.gate, self.gate_sharpness)

    def _reference(self, h: Tensor, edge_index: Tensor, phase: Tensor | None) -> tuple[Tensor, Tensor]:
        alpha, gate, mixed = self.edge_updater(edge_index, h=h, phase=phase, size=(len(h), len(h)))
        return self.propagate(edge_index, alpha=alpha, gate=gate, mixed=mixed, size=(len(h), len(h))), alpha.detach()

    @torch.compiler.disable
    def _fused(self, h: Tensor, edges: SortedEdges, phase: Tensor | None) -> tuple[Tensor, Tensor]:
        phase_E = None if phase is None else edges.sort(phase)
        gate_E = None if self.gate == "none" else self.edge_gate(h, edges, phase_E)
        value_MNd = h @ as_complex(self.weight).transpose(1, 2)
        query_MNd = h @ as_complex(self.query).transpose(1, 2)
        query_MNd = query_MNd - self.sic * parallel_part(h, query_MNd)
        keep_share = 1 - self.attn_dropout
        keep_ME = None
        if self.training and self.attn_dropout > 0:
            shape = (self.heads, len(edges.source))
            keep_ME = torch.empty(shape, dtype=torch.bool, device=h.device).bernoulli_(keep_share)
        scale = self.gamma / math.sqrt(self.channels)
        total_Nd, alpha_ME = cancelled_attention(query_MNd, value_MNd, phase_E, gate_E, keep_ME, keep_share, scale, edges)
        return total_Nd - self.eta * parallel_part(h, total_Nd), edges.unsort(alpha_ME.t())

    def _check(self, h: Tensor, edge_index: Tensor, phase: Tensor | None) -> None:
        """Refuse inputs that do not fit."""
        if not h.is_complex():
            raise ValueError(f"GESCConv needs complex states (complex64 or complex128), h is {h.dtype}")
        check_precision(h, "h")
        check_precision(self.weight, "the weight")
        if h.dim() != 2 or h.shape[1] != self.channels:
            raise ValueError(f"h must have shape [N, {self.channels}], got {list(h.shape)}")
        if phase is not None:
            check_phase_length(edge_index, phase)

    def __repr__(self) -> str:
        options = f"heads={self.heads}, sic={self.sic}, gate={self.gate!r}, norm={type(self.norm).__name__}, impl={self.impl!r}"
        return f"{type(self).__name__}({self.channels}, {options})"


def _check_options(channels: int, heads: int, gamma: float, attn_dropout: float, gate: str, norm: str | None, impl: str) -> None:
    """Refuse options of :class:`GESCConv` that have no meaning."""
    if channels < 1 or heads < 1:
        raise ValueError(f"channels and heads must be at least 1, got {channels} and {heads}")
    if gamma < 0:
        raise ValueError(f"gamma must not be negative, got {gamma}")
    if not 0 <= attn_dropout < 1:
        raise ValueError(f"attn_dropout must lie in [0, 1), got {attn_dropout}")
    if gate not in GATES:
        raise ValueError(f"gate must be one of {', '.join(GATES)}, got {gate!r}")
    if norm not in NORMS:
        raise ValueError(f"norm must be 'gauge', 'split' or None, got {norm!r}")
    if impl not in ("fused", "reference"):
        raise ValueError(f"impl must be 'fused' or 'reference', got {impl!r}")
