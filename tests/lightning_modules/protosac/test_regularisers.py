import math

import pytest
import torch

from lightning_modules.protosac.regularisers import effective_prototypes, negative_entropy, orthogonality

double = torch.float64


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=double)


def test_orthonormal_rows_give_zero_and_equal_rows_one():
    assert orthogonality(torch.eye(4, 6, dtype=double)).item() == 0
    assert orthogonality(randn(1, 5).expand(4, 5)).item() == pytest.approx(1)


def test_by_hand():
    # two rows at 60 degrees: cos^2 = 1/4
    assert orthogonality(torch.tensor([[2.0, 0.0], [0.5, 0.5 * math.sqrt(3)]], dtype=double)).item() == pytest.approx(0.25)


def test_scale_and_rotation_do_not_matter():
    P = randn(6, 4)
    rotation = torch.linalg.qr(randn(4, 4, seed=1)).Q
    scales = randn(6, 1, seed=2).exp()
    torch.testing.assert_close(orthogonality(scales * P @ rotation), orthogonality(P))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("K", "d"), [(3, 2), (7, 3), (30, 4)])
def test_welch_bound(K, d, seed):
    assert orthogonality(randn(K, d, seed=seed)).item() >= (K - d) / (d * (K - 1)) - 1e-12


@pytest.mark.parametrize("d", [2, 3, 8])
def test_a_simplex_attains_the_bound(d):
    # the rows of I - 1/K span d = K - 1 dimensions, all cosines are -1/d
    simplex = torch.eye(d + 1, dtype=double) - 1 / (d + 1)
    assert orthogonality(simplex).item() == pytest.approx(1 / d**2)


def test_descent_reaches_the_bound():
    P = randn(5, 2).requires_grad_()
    optimizer = torch.optim.Adam([P], lr=0.05)
    for _ in range(300):
        optimizer.zero_grad()
        orthogonality(P).backward()
        optimizer.step()
    assert orthogonality(P).item() == pytest.approx((5 - 2) / (2 * 4), abs=1e-4)


def test_one_prototype_has_no_neighbours():
    P = torch.ones(1, 3, requires_grad=True)
    orthogonality(P).backward()
    assert orthogonality(P) == 0
    assert P.grad.abs().max() == 0


def test_entropy_by_hand():
    w = torch.tensor([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]], dtype=double)
    assert negative_entropy(w).item() == pytest.approx(-1.5 * math.log(2) / 2)
    assert effective_prototypes(w).item() == pytest.approx((2**1.5 + 1) / 2)


def test_entropy_limits():
    assert negative_entropy(torch.full((3, 8), 1 / 8)).item() == pytest.approx(-math.log(8))
    assert negative_entropy(torch.eye(8)).item() == 0
    w = randn(50, 8).softmax(dim=1)
    assert -math.log(8) < negative_entropy(w).item() < 0


def test_entropy_gradient_is_finite_at_zero_weight():
    logits = torch.tensor([[0.0, 1.0, -torch.inf]], requires_grad=True)
    negative_entropy(logits.softmax(dim=1)).backward()
    assert logits.grad.isfinite().all()
    w = torch.tensor([0.0, 1.0]).softmax(0)
    expected = w * (w.log() - (w * w.log()).sum())
    torch.testing.assert_close(logits.grad[0, :2], expected)
