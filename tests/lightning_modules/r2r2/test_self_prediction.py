"""Self-prediction on a ring of eight states, whose transition matrix is known."""

import math

import pytest
import torch
from torch import Tensor, nn

from lightning_modules.r2r2.redundancy import RedundancyReduction, SelfPredictiveLoss

N, K = 8, 3
STAY = torch.eye(N, dtype=torch.float64)
P = STAY / 2 + (STAY.roll(1, 0) + STAY.roll(-1, 0)) / 4
TOP = torch.linalg.eigh(P).eigenvectors[:, -K:]


def best_prediction(Phi: Tensor) -> Tensor:
    """Phi F* of the least-squares linear model F*, without a gradient into F*."""
    return Phi @ torch.linalg.lstsq(Phi.detach(), P @ Phi.detach()).solution


def gradient(Phi: Tensor, loss: nn.Module) -> Tensor:
    """Gradient of 1/2 ||Phi F* - P Phi||^2 with respect to the table of embeddings."""
    Phi = Phi.clone().requires_grad_()
    (0.5 * Phi.numel() * loss(best_prediction(Phi), P @ Phi)).backward()
    assert Phi.grad is not None
    return Phi.grad


def embedding(seed: int) -> Tensor:
    return torch.randn(N, K, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_eigenvectors_of_the_ring_satisfy_both_losses():
    Phi = math.sqrt(N) * TOP
    assert RedundancyReduction()(Phi)[1]["rr"] < 1e-24
    assert SelfPredictiveLoss()(best_prediction(Phi), P @ Phi) < 1e-24
    assert RedundancyReduction()(Phi + 0.1)[1]["rr"] > 1e-3


def test_the_semi_gradient_leaves_the_gram_matrix_alone():
    for seed in range(5):
        Phi = embedding(seed)
        assert (Phi.T @ gradient(Phi, SelfPredictiveLoss())).abs().max() < 1e-12
        assert (Phi.T @ gradient(Phi, nn.MSELoss())).abs().max() > 0.05


def test_the_semi_gradient_flow_finds_the_top_subspace():
    Phi = start = embedding(0)
    for _ in range(20_000):
        F = torch.linalg.solve(Phi.T @ Phi, Phi.T @ (P @ Phi))
        Phi = Phi - 1e-2 * (Phi @ F - P @ Phi) @ F.T
    assert torch.allclose(gradient(Phi, SelfPredictiveLoss()), torch.zeros_like(Phi), atol=1e-6)
    overlap = torch.linalg.svdvals(torch.linalg.qr(Phi).Q.T @ TOP)
    assert (1 - overlap).abs().max() < 1e-6
    assert (Phi.T @ Phi - start.T @ start).norm() < 0.01 * (start.T @ start).norm()


def test_the_loss_is_a_mean_and_its_target_is_fixed():
    predicted, target = (torch.tensor(x, requires_grad=True) for x in ([[1.0, 2.0]], [[3.0, 5.0]]))
    loss = SelfPredictiveLoss()(predicted, target)
    loss.backward()
    assert loss.item() == pytest.approx((4 + 9) / 2)
    assert target.grad is None
    assert predicted.grad is not None


def test_unequal_shapes_are_refused():
    with pytest.raises(ValueError, match=r"\[2, 3\], their targets \[1, 3\]"):
        SelfPredictiveLoss()(torch.zeros(2, 3), torch.zeros(1, 3))
