import math

import numpy as np
import pytest
import torch
from gauge_graphs import random_graph
from torch_geometric.utils import to_dense_adj

from lightning_modules.gesc import connection
from lightning_modules.gesc.connection import U1Connection, check_antisymmetric

PATH = torch.tensor([[1, 0, 2, 1, 2], [0, 1, 1, 2, 2]])


def drawn_connection(features=5):
    torch.manual_seed(0)
    learned = U1Connection("learned", features).double()
    torch.nn.init.normal_(learned.direction, std=0.3)
    return learned, torch.randn(12, features, dtype=torch.float64)


def reverse_of(edge_index):
    """Position of each edge's reverse in a graph without parallel edges."""
    columns = {(j, i): e for e, (j, i) in enumerate(edge_index.t().tolist())}
    return torch.tensor([columns[i, j] for j, i in edge_index.t().tolist()])


def score(learned, a, b):
    return learned.direction @ torch.tanh(learned.target_map @ a + learned.source_map @ b)


def test_trivial_is_zero():
    assert torch.equal(U1Connection("trivial")(torch.zeros(3, 2), PATH), torch.zeros(5))


def test_learned_equals_its_formula():
    learned, x = drawn_connection()
    edge_index, _ = random_graph()
    theta = learned(x, edge_index)
    expected = [math.pi * torch.tanh(score(learned, x[i], x[j]) - score(learned, x[j], x[i])) for j, i in edge_index.t().tolist()]
    assert (theta - torch.stack(expected)).abs().max() < 1e-12
    assert theta.abs().max() > 0.1


def test_learned_is_antisymmetric_and_zero_on_loops():
    learned, x = drawn_connection()
    edge_index, _ = random_graph(pairs=10, seed=3)
    edge_index = edge_index.unique(dim=1)
    theta = learned.float()(x.float(), edge_index)
    assert (theta + theta[reverse_of(edge_index)]).abs().max() < 1e-6
    assert not theta[edge_index[0] == edge_index[1]].any()
    check_antisymmetric(edge_index, theta)


def test_learned_is_exactly_zero_before_training_and_can_move():
    learned = U1Connection("learned", 5)
    edge_index, _ = random_graph()
    theta = learned(torch.randn(12, 5), edge_index)
    assert not theta.any()
    theta[edge_index[0] < edge_index[1]].sum().backward()
    assert learned.direction.grad.abs().min() > 0
    assert sum(parameter.numel() for parameter in learned.parameters()) == 2 * 16 * 5 + 16


def test_learned_gradients_are_right_over_several_parts_of_the_edges(monkeypatch):
    monkeypatch.setattr(connection, "EDGES_AT_A_TIME", 7)
    learned, x = drawn_connection(3)
    edge_index, _ = random_graph(pairs=8)
    names, values = zip(*learned.named_parameters(), strict=True)

    def theta(x, *values):
        return torch.func.functional_call(learned, dict(zip(names, values, strict=True)), (x, edge_index))

    assert torch.autograd.gradcheck(theta, (x.requires_grad_(), *values))


def test_magnetic_phases_of_a_directed_cycle():
    edge_index = torch.tensor([[0, 1, 1, 2, 2, 0], [1, 0, 2, 1, 0, 2]])
    direction = torch.tensor([-1.0, 1, -1, 1, -1, 1])
    theta = U1Connection("magnetic", magnetic_q=0.25)(torch.zeros(3, 1), edge_index, edge_dir=direction)
    assert torch.allclose(theta.abs(), torch.full((6,), math.pi / 2))
    against_the_arrows = theta[1::2].sum()
    assert against_the_arrows.item() == pytest.approx(3 * math.pi / 2)


def test_magnetic_matrix_is_that_of_magnet():
    rng = np.random.default_rng(0)
    directed = ((rng.random((6, 6)) < 0.5) & ~np.eye(6, dtype=bool)).astype(float)
    q = 0.1
    expected = (directed + directed.T) / 2 * np.exp(2j * np.pi * q * (directed - directed.T))
    target, source = torch.from_numpy(directed + directed.T).nonzero().t()
    b_ij, b_ji = torch.from_numpy(directed)[target, source], torch.from_numpy(directed)[source, target]
    theta = U1Connection("magnetic", magnetic_q=q)(torch.zeros(6, 1).double(), torch.stack([source, target]), edge_dir=b_ij - b_ji)
    weighted = torch.polar((b_ij + b_ji) / 2, theta)
    ours = to_dense_adj(torch.stack([target, source]), edge_attr=weighted, max_num_nodes=6)[0]
    assert np.abs(ours.numpy() - expected).max() < 1e-12
    assert ((b_ij == 1) & (b_ji == 1)).any()
    assert not theta[(b_ij == 1) & (b_ji == 1)].any()


def test_given_phases_are_returned_and_checked_once():
    given = U1Connection("given")
    phase = torch.tensor([0.3, -0.3, 1.0, -1.0, 0.0])
    assert given(torch.zeros(3, 1), PATH, phase) is phase
    wrong = torch.tensor([0.3, -0.3, 1.0, -0.5, 0.0])
    with pytest.raises(ValueError, match="not antisymmetric"):
        U1Connection("given")(torch.zeros(3, 1), PATH, wrong)


def test_the_first_offending_pair_is_named_with_both_values():
    phase = torch.tensor([0.3, -0.3, 1.0, -0.5, 0.0])
    with pytest.raises(ValueError, match=r"edge 2 -> 1 has 1 and edge 1 -> 2 has -0\.5"):
        check_antisymmetric(PATH, phase)


@pytest.mark.parametrize(
    ("columns", "phase"),
    [
        ([[0, 1], [1, 0]], [math.pi, math.pi]),
        ([[0, 1], [1, 0]], [0.5, 2 * math.pi - 0.5]),
        ([[0, 1, 2], [1, 2, 0]], [0.5, 0.7, 0.9]),
        ([[0, 0, 1, 1], [1, 1, 0, 0]], [0.5, 0.7, -0.7, -0.5]),
        ([[], []], []),
    ],
    ids=["pi", "modulo_2pi", "no_reverse", "parallel", "empty"],
)
def test_antisymmetric_phases_pass(columns, phase):
    check_antisymmetric(torch.tensor(columns, dtype=torch.long), torch.tensor(phase))


def test_parallel_edges_are_compared_too():
    with pytest.raises(ValueError, match="not antisymmetric"):
        check_antisymmetric(torch.tensor([[0, 0, 1, 1], [1, 1, 0, 0]]), torch.tensor([0.5, 0.7, -0.7, -0.7]))


def test_random_graphs_of_the_tests_are_antisymmetric():
    check_antisymmetric(*random_graph(duplicates=4, isolated=True))


def test_bad_input_is_refused():
    x = torch.zeros(3, 2)
    with pytest.raises(
        ValueError, match="expected 5 phases in the order of edge_index, got shape .4.; pass phases before self-loops"
    ):
        U1Connection("given")(x, PATH, torch.zeros(4))
    with pytest.raises(ValueError, match="needs edge_phase"):
        U1Connection("given")(x, PATH)
    with pytest.raises(ValueError, match=r"direction of each edge .* discarded; use a \*_directed set"):
        U1Connection("magnetic")(x, PATH)
    with pytest.raises(ValueError, match="must be real to be gauge-invariant"):
        U1Connection("learned", 2)(x.to(torch.complex64), PATH)
    with pytest.raises(ValueError, match="needs in_channels"):
        U1Connection("learned")
    with pytest.raises(ValueError, match="one of trivial, magnetic, learned, given"):
        U1Connection("parallel")
