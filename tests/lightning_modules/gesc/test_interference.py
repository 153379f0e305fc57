import pytest
import torch
from gauge_graphs import random_graph, random_states

from lightning_modules.gesc.edge_kernels import edge_inner_products
from lightning_modules.gesc.interference import alignment, gate_value, parallel_part
from lightning_modules.gesc.sorted_edges import SortedEdges

EDGE_INDEX, THETA = random_graph(duplicates=3)
EDGES = SortedEdges.of(EDGE_INDEX, 12)


def test_parallel_part_is_the_projection():
    h, t = random_states(12, 4), random_states(12, 4, seed=1)
    p = parallel_part(h, t)
    assert (parallel_part(h, p) - p).abs().max() < 1e-12
    assert (h.conj() * (t - p)).sum(1).abs().max() < 1e-12
    assert (parallel_part(h, (2 - 1j) * h) - (2 - 1j) * h).abs().max() < 1e-12


def test_inner_products_of_edges_and_their_gradients():
    a, b = random_states(12, 3).requires_grad_(), random_states(12, 3, seed=1).requires_grad_()
    products = edge_inner_products(a, b, EDGES)
    expected = torch.stack([torch.vdot(a[i], b[j]) for j, i in EDGE_INDEX.t().tolist()])
    assert (products - expected).abs().max() < 1e-12
    assert torch.autograd.gradcheck(lambda a, b: edge_inner_products(a, b, EDGES), (a, b))


def test_alignment_is_the_cosine_after_transport():
    h = random_states(12, 4)
    c = alignment(h, EDGES, THETA)
    for value, angle, (j, i) in zip(c, THETA, EDGE_INDEX.t().tolist(), strict=True):
        expected = torch.vdot(h[i], torch.exp(1j * angle) * h[j]).real / (h[i].norm() * h[j].norm())
        assert value.item() == pytest.approx(expected.item())
    source, target = EDGE_INDEX
    real = torch.cosine_similarity(h.real[source], h.real[target])
    assert (alignment(h.real, EDGES) - real).abs().max() < 1e-12


def test_alignment_of_a_zero_vector_is_zero_with_a_bounded_gradient():
    h = random_states(12, 4)
    h[0] = 0
    h.requires_grad_()
    c = alignment(h, EDGES, THETA)
    assert not c[(EDGE_INDEX == 0).any(0)].any()
    c.sum().backward()
    assert h.grad.abs().max() < 1e5


def test_gates_by_hand():
    c = torch.tensor([-0.5, 0.0, 0.5, 1e-8])
    for gate in ("hard", "real"):
        assert gate_value(c, gate).tolist() == [0, 0.5, 1, 0.5]
    assert gate_value(c, "none").tolist() == [1, 1, 1, 1]
    assert torch.allclose(gate_value(c, "soft", 2.0), 1 / (1 + torch.exp(-2 * c)))
    assert gate_value(torch.tensor([1e-8], dtype=torch.float64), "hard").item() == 1
