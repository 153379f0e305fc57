r"""Gauge transformations, and measures that they leave unchanged.

Legend: N nodes, E edges (edge j → i: source j, target i), M heads, d features.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_modules.gesc.edge_kernels import edge_inner_products
from lightning_modules.gesc.interference import squared_norm
from lightning_modules.gesc.sorted_edges import SortedEdges

EDGES_AT_A_TIME = 65536


def gauge_transform(h_Nd: Tensor, theta_E: Tensor, edge_index: Tensor, phi_N: Tensor) -> tuple[Tensor, Tensor]:
    r"""Rotate the phase of each node and let the connection follow.

    .. math::
        h_i \mapsto e^{i \varphi_i} h_i, \qquad \theta_{ij} \mapsto \theta_{ij} + \varphi_i - \varphi_j

    Args:
        h_Nd: complex states.
        theta_E: phases of the edges j → i.
        edge_index: ``[2, E]``, rows j and i.
        phi_N: angle of each node.

    Returns:
        The transformed states and phases.
    """
    source, target = edge_index
    rotation_N1 = torch.polar(torch.ones_like(phi_N), phi_N).unsqueeze(-1)
    return rotation_N1 * h_Nd, theta_E + phi_N[target] - phi_N[source]


@torch.no_grad()
def self_parallel_fraction(h_Nd: Tensor, weight_Mdd: Tensor, edge_index: Tensor) -> Tensor:
    r"""Return the share of each message's energy along its receiver, averaged over heads, ``[E]``.

    .. math::
        \frac1M \sum_m \frac{|\langle h_i, t \rangle|^2}{\lVert h_i \rVert^2 \lVert t \rVert^2}, \qquad t = U_{ij} W_m h_j

    |U| = 1, so the phase does not enter. For a random W it is 1/d on average.

    Args:
        h_Nd: complex states that enter the layer.
        weight_Mdd: W of each head, complex.
        edge_index: ``[2, E]``, rows j and i.
    """
    edges = SortedEdges.of(edge_index, len(h_Nd))
    unit_Nd = h_Nd / squared_norm(h_Nd).sqrt()
    fraction_E = torch.zeros(edge_index.shape[1], dtype=h_Nd.real.dtype, device=h_Nd.device)
    for weight_dd in weight_Mdd:
        value_Nd = h_Nd @ weight_dd.t()
        unit_value_Nd = value_Nd / squared_norm(value_Nd).sqrt()
        fraction_E += edge_inner_products(unit_Nd, unit_value_Nd, edges).abs().square() / len(weight_Mdd)
    return edges.unsort(fraction_E)


@torch.no_grad()
def dirichlet_energy(h_Nd: Tensor, edge_index: Tensor, phase_E: Tensor | None = None) -> Tensor:
    r"""Return how much neighbours disagree after transport, a scalar; 0 where all is parallel (oversmoothed).

    .. math::
        \frac{1}{\lVert h \rVert^2} \sum_{(j \to i)}
            \Bigl\lVert \frac{h_i}{\sqrt{d_i}} - e^{i \theta_{ij}} \frac{h_j}{\sqrt{d_j}} \Bigr\rVert^2

    The sum runs over the directed edges given, d_i counts those into i.

    Args:
        h_Nd: complex states.
        edge_index: ``[2, E]``, rows j and i.
        phase_E: θ of each edge; None is zero.
    """
    source, target = edge_index
    degree_N = h_Nd.real.new_zeros(len(h_Nd)).index_add_(0, target, h_Nd.real.new_ones(len(target)))
    scaled_Nd = h_Nd / degree_N.clamp_min(1.0).sqrt().unsqueeze(-1)
    transport_E1 = None if phase_E is None else torch.polar(torch.ones_like(phase_E), phase_E).to(h_Nd.dtype).unsqueeze(-1)
    energy = h_Nd.real.new_zeros(())
    for start in range(0, len(source), EDGES_AT_A_TIME):
        some = slice(start, start + EDGES_AT_A_TIME)
        carried_Ed = scaled_Nd[source[some]] if transport_E1 is None else transport_E1[some] * scaled_Nd[source[some]]
        energy += torch.view_as_real(scaled_Nd[target[some]] - carried_Ed).square().sum()
    return energy / torch.view_as_real(h_Nd).square().sum().clamp_min(torch.finfo(energy.dtype).tiny)
