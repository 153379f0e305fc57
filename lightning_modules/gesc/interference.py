r"""What a message repeats of its receiver, and how well the two agree.

For a receiver h_i and a transported message :math:`t = U_{ij} W h_j`:

.. math::
    p = P_i t = h_i \frac{\langle h_i, t \rangle}{\max(\lVert h_i \rVert^2, 10^{-6})}, \qquad
    c_{ij} = \frac{\Re \langle h_i, U_{ij} h_j \rangle}{\max(\lVert h_i \rVert, 10^{-3})\, \max(\lVert h_j \rVert, 10^{-3})}

A vector with a longer norm than 1e-3 is exactly projected; a zero vector has p = 0, c = 0 and finite gradients.

Legend: N nodes, E edges, M heads, d features.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from lightning_modules.gesc.edge_kernels import edge_inner_products
from lightning_modules.gesc.sorted_edges import SortedEdges

Gate = Literal["hard", "soft", "none", "real"]
GATES: tuple[str, ...] = get_args(Gate)
SMALLEST_SQUARE = 1e-6


def squared_norm(h_Nd: Tensor) -> Tensor:
    """Return ``max(‖h_i‖², 1e-6)``, ``[N, 1]`` real."""
    parts = torch.view_as_real(h_Nd) if h_Nd.is_complex() else h_Nd.unsqueeze(-1)
    return parts.square().sum((-2, -1)).clamp_min(SMALLEST_SQUARE).unsqueeze(-1)


def parallel_part(h_Nd: Tensor, t_Nd: Tensor) -> Tensor:
    """Return p, the part of t along h; the leading axes of the two broadcast."""
    return h_Nd * ((h_Nd.conj() * t_Nd).sum(-1, keepdim=True) / squared_norm(h_Nd))


def unit(h_Nd: Tensor) -> Tensor:
    """Return ``h / max(‖h‖, 1e-3)``."""
    return h_Nd / squared_norm(h_Nd).sqrt()


def carried_product(h_Nd: Tensor, edges: SortedEdges, phase_E: Tensor | None = None) -> Tensor:
    r"""Return :math:`\langle h_i, U_{ij} h_j \rangle / (\lVert h_i \rVert \lVert h_j \rVert)` of each edge, ``[E]`` complex.

    Edges are in the order of ``edges``, which is that of ``phase_E`` too; a real ``h`` gives the plain cosine.
    """
    unit_Nd = unit(h_Nd)
    if not h_Nd.is_complex():
        unit_Nd = torch.view_as_complex(torch.stack([unit_Nd, torch.zeros_like(unit_Nd)], -1))
    product_E = edge_inner_products(unit_Nd, unit_Nd, edges)
    return product_E if phase_E is None else product_E * torch.polar(torch.ones_like(phase_E), phase_E)


def alignment(h_Nd: Tensor, edges: SortedEdges, phase_E: Tensor | None = None) -> Tensor:
    """Return c of each edge, the real part of ``carried_product``, ``[E]``."""
    return carried_product(h_Nd, edges, phase_E).real


def gate_value(alignment_E: Tensor, gate: Gate, sharpness: float = 1.0) -> Tensor:
    r"""Return k of each edge: how much of its message is let through.

    .. math::
        k = \tfrac12 (1 + \operatorname{sign} c) \text{ (hard, real)}, \qquad
        k = \sigma(\beta c) \text{ (soft)}, \qquad k = 1 \text{ (none)}

    The sign of an alignment within rounding of 0 (16 machine epsilons) is 0, so that it does not depend on the gauge.
    """
    if gate == "none":
        return torch.ones_like(alignment_E)
    if gate == "soft":
        return torch.sigmoid(sharpness * alignment_E)
    detached_E = alignment_E.detach()
    rounding = 16 * torch.finfo(detached_E.dtype).eps
    return 0.5 + 0.5 * torch.where(detached_E.abs() > rounding, detached_E.sign(), 0.0)
