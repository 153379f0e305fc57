r"""Connections of U(1): the phase that a state takes on along an edge.

Legend: N nodes, E edges (edge j → i: source j, target i), F features, K width of the learned connection.
"""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from lightning_modules.gesc.features import feature_product
from lightning_modules.gesc.links import links_of

ConnectionKind = Literal["trivial", "magnetic", "learned", "given"]
KINDS: tuple[str, ...] = get_args(ConnectionKind)
EDGES_AT_A_TIME = 65536


def check_phase_length(edge_index: Tensor, phase: Tensor) -> None:
    """Refuse phases that are not one per edge.

    Raises:
        ValueError: if the shape is not ``[E]``.
    """
    num_edges = edge_index.shape[1]
    if phase.shape != (num_edges,):
        raise ValueError(
            f"expected {num_edges} phases in the order of edge_index, got shape {list(phase.shape)}; "
            "pass phases before self-loops are added"
        )


def check_antisymmetric(edge_index: Tensor, phase: Tensor, tolerance: float = 1e-4) -> None:
    r"""Refuse phases of which :math:`e^{i \theta_{ji}} \ne e^{-i \theta_{ij}}` for two edges j → i and i → j.

    Phases count modulo 2π. An edge without its reverse passes; of parallel edges the mean of :math:`e^{i \theta}` is compared.

    Args:
        edge_index: ``[2, E]``, rows j and i.
        phase: θ of each edge, ``[E]``.
        tolerance: largest distance of the two sides in the complex plane.

    Raises:
        ValueError: if the length differs, or with the first offending pair and both values.
    """
    check_phase_length(edge_index, phase)
    if phase.numel() == 0:
        return
    source, target = edge_index
    num_nodes = int(edge_index.max()) + 1
    pair_P, pair_of_E, count_P = torch.unique(target * num_nodes + source, return_inverse=True, return_counts=True)
    transport_E = torch.polar(torch.ones_like(phase), phase)
    mean_P = transport_E.new_zeros(len(pair_P)).index_add_(0, pair_of_E, transport_E) / count_P
    reversed_P = pair_P % num_nodes * num_nodes + pair_P // num_nodes
    at_P = torch.searchsorted(pair_P, reversed_P).clamp_max(len(pair_P) - 1)
    wrong_P = (pair_P[at_P] == reversed_P) & ((mean_P - mean_P[at_P].conj()).abs() > tolerance)
    wrong_E = wrong_P[pair_of_E]
    if not wrong_E.any():
        return
    first = int(wrong_E.nonzero()[0])
    j, i = int(source[first]), int(target[first])
    back = int(((source == i) & (target == j)).nonzero()[0])
    raise ValueError(
        f"edge phases are not antisymmetric: edge {j} -> {i} has {float(phase[first]):.6g} "
        f"and edge {i} -> {j} has {float(phase[back]):.6g}; each must be minus the other"
    )


class U1Connection(nn.Module):
    r"""Edge phases :math:`\theta_{ij} = -\theta_{ji}` that carry a state from node j to node i by :math:`e^{i \theta_{ij}}`.

    .. math::
        \text{trivial: } & \theta_{ij} = 0 \\
        \text{magnetic: } & \theta_{ij} = 2 \pi q\, (B_{ij} - B_{ji}), \quad B_{ij} = 1 \text{ if the data has the edge } i \to j \\
        \text{learned: } & \theta_{ij} = \pi \tanh\bigl( f(x_i, x_j) - f(x_j, x_i) \bigr), \quad
            f(a, b) = v^\top \tanh(A a + B b) \\
        \text{given: } & \theta_{ij} \text{ is read from the data}

    The learned connection is antisymmetric by construction and zero at the start (v = 0). It reads the raw real input, which no
    gauge change touches.

    Args:
        kind: which of the four.
        in_channels: F, for the learned connection.
        magnetic_q: charge q.
        width: K, rows of A and B.

    Shapes:
        - x: ``[N, F]``, real (dense or sparse CSR) for the learned connection, else unused;
        - edge_index: ``[2, E]``, rows j and i;
        - edge_phase: ``[E]``, for the given connection; its first batch is checked to be antisymmetric (outside ``torch.compile``);
        - edge_dir: ``[E]``, :math:`B_{ij} - B_{ji} \in \{-1, 0, 1\}` of each edge j → i, for the magnetic connection;
        - output: θ, ``[E]`` real.

    Raises:
        ValueError: on an unknown kind, a missing or wrong input of the kind, or given phases that are not antisymmetric.

    Source: magnetic as in MagNet (arXiv 2102.11391); learned is ours, the form of GESC's phase (arXiv 2511.16062) is not public.
    """

    def __init__(
        self, kind: ConnectionKind = "learned", in_channels: int | None = None, magnetic_q: float = 0.25, width: int = 16
    ) -> None:
        super().__init__()
        if kind not in KINDS:
            raise ValueError(f"connection must be one of {', '.join(KINDS)}, got {kind!r}")
        self.kind, self.in_channels, self.magnetic_q, self.width = kind, in_channels, magnetic_q, width
        self.checked = False
        if kind == "learned":
            if in_channels is None:
                raise ValueError("connection='learned' needs in_channels, the number of input features")
            self.target_map = nn.Parameter(torch.empty(width, in_channels))
            self.source_map = nn.Parameter(torch.empty(width, in_channels))
            self.direction = nn.Parameter(torch.empty(width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw A and B uniformly by their fan-in and set v to zero."""
        if self.kind == "learned":
            bound = 1 / math.sqrt(max(self.target_map.shape[1], 1))
            nn.init.uniform_(self.target_map, -bound, bound)
            nn.init.uniform_(self.source_map, -bound, bound)
            nn.init.zeros_(self.direction)

    def forward(self, x_NF: Tensor, edge_index: Tensor, edge_phase: Tensor | None = None, edge_dir: Tensor | None = None) -> Tensor:
        """Return θ of each edge."""
        if self.kind == "learned":
            return self._learned(x_NF, edge_index)
        if self.kind == "magnetic":
            return self._magnetic(x_NF, edge_index, edge_dir)
        if self.kind == "given":
            return self._given(edge_index, edge_phase)
        return torch.zeros(edge_index.shape[1], dtype=x_NF.real.dtype, device=x_NF.device)

    def _learned(self, x_NF: Tensor, edge_index: Tensor) -> Tensor:
        if x_NF.is_complex():
            raise ValueError(
                "connection='learned' reads the input, which must be real to be gauge-invariant, but x is complex; "
                "use connection='given' or 'trivial'"
            )
        both_maps_F = torch.cat([self.target_map, self.source_map])
        a_NK, b_NK = feature_product(x_NF, both_maps_F.t()).split(self.width, dim=1)
        links = links_of(edge_index, len(x_NF))
        phase_L = math.pi * torch.tanh(_AntisymmetricScore.apply(a_NK, b_NK, self.direction, links.ends))
        return links.sign.to(phase_L.dtype) * phase_L.index_select(0, links.link)

    def _magnetic(self, x_NF: Tensor, edge_index: Tensor, edge_dir: Tensor | None) -> Tensor:
        if edge_dir is None:
            raise ValueError(
                "connection='magnetic' needs the direction of each edge (edge_direction), but the direction was discarded; "
                "use a *_directed set"
            )
        check_phase_length(edge_index, edge_dir)
        return 2 * math.pi * self.magnetic_q * edge_dir.to(x_NF.real.dtype)

    def _given(self, edge_index: Tensor, edge_phase: Tensor | None) -> Tensor:
        if edge_phase is None:
            raise ValueError("connection='given' needs edge_phase, one phase for each edge, in the data")
        check_phase_length(edge_index, edge_phase)
        if not self.checked and not torch.compiler.is_compiling():
            check_antisymmetric(edge_index, edge_phase)
            self.checked = True
        return edge_phase

    def extra_repr(self) -> str:
        details = {
            "learned": f", in_channels={self.in_channels}, width={self.width}",
            "magnetic": f", magnetic_q={self.magnetic_q}",
        }
        return f"{self.kind!r}{details.get(self.kind, '')}"


class _AntisymmetricScore(torch.autograd.Function):
    """Return ``v · (tanh(a_i + b_j) - tanh(a_j + b_i))`` of each edge; the backward pass recomputes the hyperbolic tangents."""

    @staticmethod
    def forward(ctx: Any, a_NK: Tensor, b_NK: Tensor, v_K: Tensor, edge_index: Tensor) -> Tensor:
        ctx.save_for_backward(a_NK, b_NK, v_K, edge_index)
        score_E = a_NK.new_empty(edge_index.shape[1])
        for some in _slices(edge_index):
            there_EK, back_EK = _both_ways(a_NK, b_NK, edge_index[:, some])
            score_E[some] = (there_EK - back_EK) @ v_K
        return score_E

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_E: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        a_NK, b_NK, v_K, edge_index = ctx.saved_tensors
        grad_a_NK, grad_b_NK, grad_v_K = torch.zeros_like(a_NK), torch.zeros_like(b_NK), torch.zeros_like(v_K)
        for some in _slices(edge_index):
            source, target = edge_index[:, some]
            there_EK, back_EK = _both_ways(a_NK, b_NK, edge_index[:, some])
            grad_v_K += grad_E[some] @ (there_EK - back_EK)
            outer_EK = grad_E[some].unsqueeze(1) * v_K
            slope_EK, back_slope_EK = outer_EK * (1 - there_EK.square()), outer_EK * (back_EK.square() - 1)
            grad_a_NK.index_add_(0, target, slope_EK).index_add_(0, source, back_slope_EK)
            grad_b_NK.index_add_(0, source, slope_EK).index_add_(0, target, back_slope_EK)
        return grad_a_NK, grad_b_NK, grad_v_K, None


def _slices(edge_index: Tensor) -> list[slice]:
    """Cut the edges into parts of bounded size."""
    return [slice(start, start + EDGES_AT_A_TIME) for start in range(0, edge_index.shape[1], EDGES_AT_A_TIME)]


def _both_ways(a_NK: Tensor, b_NK: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``tanh(a_i + b_j)`` and ``tanh(a_j + b_i)``."""
    (a_source_EK, b_source_EK), (a_target_EK, b_target_EK) = (
        (a_NK.index_select(0, nodes_E), b_NK.index_select(0, nodes_E)) for nodes_E in edge_index
    )
    return torch.tanh(a_target_EK + b_source_EK), torch.tanh(a_source_EK + b_target_EK)
