"""Proximal steps against values by hand, optimality conditions, a grid search and KKT systems."""

import pytest
import torch

from lightning_modules.sheaf_admm.x_solvers import DenseQuadratic, DiagonalProx, EqualityQP, SimpleProx

DOUBLE = torch.float64
RHO = torch.tensor(0.5, dtype=DOUBLE)


def one(value: float) -> torch.Tensor:
    return torch.full((1, 1, 1), value, dtype=DOUBLE)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def positive_definite(agents: int, batch: int, size: int) -> torch.Tensor:
    root = random(agents, batch, size, size, seed=7)
    return root @ root.mT + 0.1 * torch.eye(size, dtype=DOUBLE)


@pytest.mark.parametrize(
    ("q", "options", "expected"),
    [
        (-1.0, {}, 0.75),
        (-1.0, {"l1": 0.5}, 0.5),
        (-1.0, {"l1": 0.5, "low": 0.0}, 0.5),
        (-1.0, {"l1": 0.5, "high": 0.4}, 0.4),
        (2.0, {"low": 0.0}, 0.0),
        (2.0, {"low": -0.25}, -0.25),
        (2.0, {}, -0.75),
        (2.0, {"l1": 0.5}, -0.5),
        (-1.0, {"l1": 1e6}, 0.0),
        (-1.0, {"l2": 1.0}, 0.5),
    ],
)
def test_diagonal_by_hand(q, options, expected):
    assert DiagonalProx(one(1.5), one(q), **options)(one(1.0), RHO).item() == pytest.approx(expected)


def test_diagonal_subgradient_contains_zero():
    v, q = random(5, 7, 3), random(5, 7, 3, seed=1)
    Q, l1, low, high = random(5, 7, 3, seed=2).exp(), 0.3, -0.4, 0.5
    x = DiagonalProx(Q, q, l1, low=low, high=high)(v, RHO)
    slope = Q * x + q + RHO * (x - v)
    zero, lower, upper = x == 0, x == low, x == high
    inside = ~(zero | lower | upper)
    assert all(case.any() for case in (zero, lower, upper, inside))
    assert torch.allclose(slope[inside], -l1 * x[inside].sign())
    assert (slope[zero].abs() <= l1 + 1e-12).all()
    assert (slope[lower] - l1 >= -1e-12).all()
    assert (slope[upper] + l1 <= 1e-12).all()


@pytest.mark.parametrize("low", [0.0, 0.1, torch.zeros(3, dtype=DOUBLE), -0.2])
def test_diagonal_agrees_with_grid_search(low):
    v, q, Q = random(2, 2, 3), random(2, 2, 3, seed=1), random(2, 2, 3, seed=2).exp()
    l1, l2, high = random(2, 2, 3, seed=3).abs() * 0.2, 0.1, torch.tensor([0.3, 1.0, 2.0], dtype=DOUBLE)
    x = DiagonalProx(Q, q, l1, l2, low, high)(v, RHO)
    grid = torch.linspace(0, 1, 20001, dtype=DOUBLE).view(-1, 1, 1, 1)
    grid = low + grid * (high - low)
    objective = 0.5 * (Q + l2) * grid**2 + q * grid + l1 * grid.abs() + 0.5 * RHO * (grid - v) ** 2
    assert torch.allclose(grid.take_along_dim(objective.argmin(0, keepdim=True), 0)[0], x, atol=2e-4)


def test_diagonal_is_firmly_non_expansive():
    solver = DiagonalProx(random(4, 50, 3).exp(), random(4, 50, 3, seed=1), 0.2, low=-0.5, high=0.5)
    v, w = random(4, 50, 3, seed=2), random(4, 50, 3, seed=3)
    step, shift = solver(v, RHO) - solver(w, RHO), v - w
    assert (step.square().sum(-1) <= (step * shift).sum(-1) + 1e-12).all()


def test_diagonal_accepts_a_penalty_per_agent():
    v, q, Q = random(4, 2, 3), random(4, 2, 3, seed=1), random(4, 2, 3, seed=2).exp()
    rho = random(4, 2, 1, seed=3).exp()
    together = DiagonalProx(Q, q, 0.1)(v, rho)
    alone = DiagonalProx(Q[2:3, 1:2], q[2:3, 1:2], 0.1)(v[2:3, 1:2], rho[2, 1, 0])
    assert torch.allclose(together[2:3, 1:2], alone)


def test_diagonal_gradients():
    tensors = [random(2, 2, 3, seed=seed).requires_grad_() for seed in range(3)]
    weight = torch.full((3,), 0.1, dtype=DOUBLE, requires_grad=True)

    def step(v, q, logits, weight, rho):
        return DiagonalProx(logits.exp(), q, weight, low=-0.6, high=torch.full((3,), 0.7, dtype=DOUBLE))(v, rho)

    assert torch.autograd.gradcheck(step, (*tensors, weight, RHO.clone().requires_grad_()))


def test_simple_is_the_weighted_average():
    assert SimpleProx(one(3.0), torch.tensor(1.5, dtype=DOUBLE))(one(1.0), RHO).item() == pytest.approx(2.5)


def test_dense_solves_its_normal_equations():
    Q, q, v = positive_definite(3, 2, 4), random(3, 2, 4), random(3, 2, 4, seed=1)
    x = DenseQuadratic(Q, q)(v, RHO)
    assert torch.allclose((Q @ x.unsqueeze(-1)).squeeze(-1) + q + RHO * (x - v), torch.zeros_like(x), atol=1e-12)


def test_dense_with_diagonal_matrix_is_the_diagonal_step():
    diagonal, q, v, rho = random(3, 2, 4).exp(), random(3, 2, 4, seed=1), random(3, 2, 4, seed=2), random(3, 2, 1).exp()
    assert torch.allclose(DenseQuadratic(diagonal.diag_embed(), q)(v, rho), DiagonalProx(diagonal, q)(v, rho))


def test_equality_qp_solves_its_kkt_system():
    Q, q, v = positive_definite(3, 2, 4), random(3, 2, 4), random(3, 2, 4, seed=1)
    A, b = random(3, 2, 2, 4, seed=2), random(3, 2, 2, seed=3)
    x = EqualityQP(Q, q, A, b)(v, RHO)
    top = torch.cat([Q + RHO * torch.eye(4, dtype=DOUBLE), A.mT], -1)
    bottom = torch.cat([A, torch.zeros(3, 2, 2, 2, dtype=DOUBLE)], -1)
    expected = torch.linalg.solve(torch.cat([top, bottom], -2), torch.cat([RHO * v - q, b], -1))[..., :4]
    assert torch.allclose(x, expected, atol=1e-10)
    assert torch.allclose((A @ x.unsqueeze(-1)).squeeze(-1), b)


def test_factorisations_run_on_half_precision_coefficients():
    Q, q = positive_definite(2, 1, 3), random(2, 1, 3)
    x = DenseQuadratic(Q.bfloat16(), q.bfloat16())(random(2, 1, 3).float(), RHO.float())
    assert x.dtype == torch.float32


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: DiagonalProx(one(0.0), one(1.0)), "Q > 0"),
        (lambda: DiagonalProx(one(1.0), one(1.0), l1=-0.1), "l1 >= 0"),
        (lambda: DiagonalProx(one(1.0), one(1.0), l2=-0.1), "l2 >= 0"),
        (lambda: DiagonalProx(one(1.0), one(1.0), low=1.0, high=0.0), "low <= high"),
        (lambda: SimpleProx(one(1.0), one(0.0)), "beta > 0"),
        (lambda: DenseQuadratic(random(1, 1, 2, 2), random(1, 1, 2)), "symmetric"),
        (lambda: DenseQuadratic(-positive_definite(1, 1, 2) * 99, random(1, 1, 2))(random(1, 1, 2), RHO), "positive definite"),
        (lambda: EqualityQP(positive_definite(1, 1, 3), random(1, 1, 3), random(1, 1, 1, 2), random(1, 1, 1)), "shape"),
        (
            lambda: EqualityQP(positive_definite(1, 1, 3), random(1, 1, 3), torch.ones(1, 1, 2, 3, dtype=DOUBLE), random(1, 1, 2))(
                random(1, 1, 3), RHO
            ),
            "linearly dependent",
        ),
    ],
)
def test_bad_coefficients_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_checks_can_be_left_out():
    assert DiagonalProx(one(-0.1), one(1.0), validate_args=False)(one(1.0), RHO).isfinite().all()
