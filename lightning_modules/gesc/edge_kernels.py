r"""Products on edges that never hold a feature vector per edge.

Two sparse products do all the work: inner products of the two end nodes of each edge, and weighted sums over a node's edges.
Each is the gradient of the other, so backward too needs node tensors and one scalar per edge and head only.

Gradients follow PyTorch's convention, :math:`\bar z = \partial L / \partial \Re z + i\, \partial L / \partial \Im z`.

All heads are done at once, as M copies of the graph side by side.

Legend: N nodes, E edges (sorted by target), M heads, R = M N nodes of all copies, d features, D = 2d real and imaginary parts.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lightning_modules.gesc.sorted_edges import SortedEdges
from lightning_modules.gesc.sparse_product import weighted_sum


def edge_inner_products(a_Nd: Tensor, b_Nd: Tensor, edges: SortedEdges) -> Tensor:
    r"""Return :math:`\langle a_i, b_j \rangle = \sum_k \overline{a_{ik}}\, b_{jk}` for each edge j → i, ``[E]`` complex.

    Args:
        a_Nd: states of targets, complex.
        b_Nd: states of sources, complex.
        edges: the edges.
    """
    return _EdgeInnerProducts.apply(a_Nd, b_Nd, edges)


def cancelled_attention(
    query_MNd: Tensor,
    value_MNd: Tensor,
    phase_E: Tensor | None,
    gate_E: Tensor | None,
    keep_ME: Tensor | None,
    keep_share: float,
    scale: float,
    edges: SortedEdges,
) -> tuple[Tensor, Tensor]:
    r"""Attend by the modulus of inner products and sum the transported values over edges and heads.

    .. math::
        \alpha_{ij}^m = \operatorname{softmax}_j\, \sigma\, |\langle q_i^m, v_j^m \rangle|, \qquad
        y_i = \sum_m \sum_j \alpha_{ij}^m\, \tfrac{\chi_{ij}^m}{\kappa}\, k_{ij}\, e^{i \theta_{ij}}\, v_j^m

    Args:
        query_MNd: q, complex.
        value_MNd: v, complex.
        phase_E: θ of each edge, real; None is zero.
        gate_E: k of each edge, real; None is one.
        keep_ME: χ, which weights dropout keeps; None keeps all.
        keep_share: κ, the share that dropout keeps.
        scale: σ, not negative.
        edges: the edges.

    Returns:
        y, ``[N, d]`` complex, and α, ``[M, E]`` real, without gradient.
    """
    return _CancelledAttention.apply(query_MNd, value_MNd, phase_E, gate_E, keep_ME, keep_share, scale, edges)


class _EdgeInnerProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a_Nd: Tensor, b_Nd: Tensor, edges: SortedEdges) -> Tensor:
        ctx.save_for_backward(a_Nd, b_Nd)
        ctx.edges = edges
        return _products(a_Nd, b_Nd, edges)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_E: Tensor) -> tuple[Tensor, Tensor, None]:
        a_Nd, b_Nd = ctx.saved_tensors
        return _receive(grad_E.real, -grad_E.imag, b_Nd, ctx.edges), _send(grad_E.real, grad_E.imag, a_Nd, ctx.edges), None


class _CancelledAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query_MNd: Tensor,
        value_MNd: Tensor,
        phase_E: Tensor | None,
        gate_E: Tensor | None,
        keep_ME: Tensor | None,
        keep_share: float,
        scale: float,
        edges: SortedEdges,
    ) -> tuple[Tensor, Tensor]:
        copies = edges.copies(len(query_MNd))
        score_ME = _products(query_MNd.flatten(0, 1), value_MNd.flatten(0, 1), copies).view(len(query_MNd), len(edges.source))
        alpha_ME = _segment_softmax(score_ME.abs().mul_(scale), copies)
        weight_ME = _times(_dropped(alpha_ME, keep_ME, keep_share), gate_E)
        real_ME, imag_ME = _transported(weight_ME, *_cos_sin(phase_E))
        y_Nd = _receive(real_ME, imag_ME, value_MNd.flatten(0, 1), copies).view_as(value_MNd).sum(0)
        ctx.save_for_backward(query_MNd, value_MNd, phase_E, gate_E, keep_ME, score_ME, alpha_ME)
        ctx.keep_share, ctx.scale, ctx.edges = keep_share, scale, edges
        ctx.mark_non_differentiable(alpha_ME)
        return y_Nd, alpha_ME

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_Nd: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        query_MNd, value_MNd, phase_E, gate_E, keep_ME, score_ME, alpha_ME = ctx.saved_tensors
        copies = ctx.edges.copies(len(query_MNd))
        query_Rd, value_Rd = query_MNd.flatten(0, 1), value_MNd.flatten(0, 1)
        grad_Rd = grad_Nd.expand_as(query_MNd).flatten(0, 1)
        cos_E, sin_E = _cos_sin(phase_E)
        dropped_ME = _dropped(alpha_ME, keep_ME, ctx.keep_share)
        weight_ME = _times(dropped_ME, gate_E)
        grad_phase_E = grad_gate_E = None
        if cos_E is None or sin_E is None:
            grad_weight_ME = _real_products(grad_Rd, value_Rd, copies).view_as(alpha_ME)
        else:
            product_ME = _products(grad_Rd, value_Rd, copies).view_as(alpha_ME)
            grad_weight_ME = cos_E * product_ME.real - sin_E * product_ME.imag
            if ctx.needs_input_grad[2]:
                grad_phase_E = -(weight_ME * (sin_E * product_ME.real + cos_E * product_ME.imag)).sum(0)
        if ctx.needs_input_grad[3]:
            grad_gate_E = (grad_weight_ME * dropped_ME).sum(0)
        inner_ME = alpha_ME * _times(_dropped(grad_weight_ME, keep_ME, ctx.keep_share), gate_E)
        grad_logit_ME = inner_ME - alpha_ME * _spread(_segment_sum(inner_ME, copies), copies).view_as(alpha_ME)
        grad_score_ME = score_ME.sgn() * (ctx.scale * grad_logit_ME)
        grad_query_Rd = _receive(grad_score_ME.real, -grad_score_ME.imag, value_Rd, copies)
        grad_value_Rd = _send(grad_score_ME.real, grad_score_ME.imag, query_Rd, copies)
        real_ME, imag_ME = _transported(weight_ME, cos_E, sin_E)
        grad_value_Rd += _send(real_ME, None if imag_ME is None else -imag_ME, grad_Rd, copies)
        grad_query_MNd, grad_value_MNd = grad_query_Rd.view_as(query_MNd), grad_value_Rd.view_as(value_MNd)
        return grad_query_MNd, grad_value_MNd, grad_phase_E, grad_gate_E, None, None, None, None


def _parts(z_Nd: Tensor) -> Tensor:
    """Return real and imaginary parts side by side, ``[N, D]``."""
    return torch.view_as_real(z_Nd.resolve_conj().contiguous()).flatten(1)


def _products(a_Nd: Tensor, b_Nd: Tensor, edges: SortedEdges) -> Tensor:
    """Return ``<a_i, b_j>`` of each edge, ``[E]`` complex; two real products are faster than a complex one."""
    a_ND = _parts(a_Nd)
    return torch.complex(_sampled(a_ND, _parts(b_Nd), edges), _sampled(a_ND, _parts(-1j * b_Nd), edges))


def _real_products(a_Nd: Tensor, b_Nd: Tensor, edges: SortedEdges) -> Tensor:
    """Return ``Re <a_i, b_j>`` of each edge, ``[E]``."""
    return _sampled(_parts(a_Nd), _parts(b_Nd), edges)


def _sampled(a_Nd: Tensor, b_Nd: Tensor, edges: SortedEdges) -> Tensor:
    """Return the entries of ``a bᵀ`` at the edges."""
    values_E = a_Nd.new_zeros(edges.source.shape)
    at_edges = _csr(edges.incoming, edges.source, values_E, edges.num_nodes)
    torch.sparse.sampled_addmm(at_edges, a_Nd, b_Nd.t(), beta=0.0, out=at_edges)
    return values_E


def _receive(real_E: Tensor, imag_E: Tensor | None, z_Nd: Tensor, edges: SortedEdges) -> Tensor:
    """Return ``Σ_j (real + i imag)_ij z_j`` over the edges into each node, ``[N, d]`` complex."""
    return _complex_sum(real_E.flatten(), None if imag_E is None else imag_E.flatten(), z_Nd, edges.incoming, edges.source)


def _send(real_E: Tensor, imag_E: Tensor | None, z_Nd: Tensor, edges: SortedEdges) -> Tensor:
    """Return ``Σ_i (real + i imag)_ij z_i`` over the edges out of each node, ``[N, d]`` complex."""
    real_E = real_E.flatten().index_select(0, edges.by_source)
    imag_E = None if imag_E is None else imag_E.flatten().index_select(0, edges.by_source)
    return _complex_sum(real_E, imag_E, z_Nd, edges.outgoing, edges.receiver)


def _complex_sum(real_E: Tensor, imag_E: Tensor | None, z_Nd: Tensor, start: Tensor, column_E: Tensor) -> Tensor:
    """Multiply a sparse complex matrix by a dense one, its real and its imaginary part apart."""
    z_ND = _parts(z_Nd)
    real_ND = weighted_sum(real_E, z_ND, start, column_E)
    y_Nd = torch.view_as_complex(real_ND.unflatten(1, (-1, 2)))
    if imag_E is None:
        return y_Nd
    imag_Nd2 = weighted_sum(imag_E, z_ND, start, column_E).unflatten(1, (-1, 2))
    y_Nd.real -= imag_Nd2[..., 1]
    y_Nd.imag += imag_Nd2[..., 0]
    return y_Nd


def _csr(start: Tensor, column_E: Tensor, values_E: Tensor, num_nodes: int) -> Tensor:
    return torch.sparse_csr_tensor(start, column_E, values_E, (num_nodes, num_nodes), check_invariants=False)


def _segment_softmax(logit_ME: Tensor, copies: SortedEdges) -> Tensor:
    """Softmax of logits >= 0 over the edges into each node."""
    logit = logit_ME.flatten()
    top = torch.segment_reduce(logit, "max", offsets=copies.incoming, axis=0, initial=0.0)
    weight = (logit - _spread(top, copies)).exp_()
    return weight.div_(_spread(_segment_sum(weight, copies), copies)).view_as(logit_ME)


def _segment_sum(values_E: Tensor, edges: SortedEdges) -> Tensor:
    """Sum over the edges into each node, ``[N]``."""
    return torch.segment_reduce(values_E.flatten(), "sum", offsets=edges.incoming, axis=0, initial=0.0)


def _spread(values_N: Tensor, edges: SortedEdges) -> Tensor:
    """Give each edge the value of its target, ``[E]``."""
    return values_N.index_select(0, edges.target)


def _cos_sin(phase_E: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    return (None, None) if phase_E is None else (phase_E.cos(), phase_E.sin())


def _transported(weight_ME: Tensor, cos_E: Tensor | None, sin_E: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return the real and the imaginary part of weight times transport."""
    return (weight_ME, None) if cos_E is None or sin_E is None else (weight_ME * cos_E, weight_ME * sin_E)


def _times(values_ME: Tensor, gate_E: Tensor | None) -> Tensor:
    return values_ME if gate_E is None else values_ME * gate_E


def _dropped(values_ME: Tensor, keep_ME: Tensor | None, keep_share: float) -> Tensor:
    return values_ME if keep_ME is None else values_ME * keep_ME / keep_share
