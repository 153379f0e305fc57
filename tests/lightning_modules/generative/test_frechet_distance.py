import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm
from torchmetrics.image.fid import FrechetInceptionDistance

from lightning_modules.generative.frechet_distance import FrechetFeatureDistance, frechet_distance

GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=GENERATOR, dtype=torch.float64)


def test_closed_forms():
    mean, other = normal(4), normal(4)
    first, second = torch.tensor([1.0, 4.0, 0.0, 9.0]).double(), torch.tensor([4.0, 4.0, 1.0, 1.0]).double()
    # commuting covariances: squared difference of the standard deviations
    expected = (mean - other).square().sum() + (first.sqrt() - second.sqrt()).square().sum()
    assert frechet_distance(mean, first.diag(), other, second.diag()).item() == pytest.approx(expected.item())
    turn = torch.linalg.qr(normal(4, 4)).Q
    turned = [turn @ values.diag() @ turn.T for values in (first, second)]
    assert frechet_distance(mean, turned[0], other, turned[1]).item() == pytest.approx(expected.item())


def test_any_covariances():
    factors = [normal(5, 5) for _ in range(2)]
    one, two = (factor @ factor.T for factor in factors)
    cross = np.trace(np.real(sqrtm((one @ two).numpy())))
    zero = torch.zeros(5).double()
    expected = one.trace().item() + two.trace().item() - 2 * cross
    assert frechet_distance(zero, one, zero, two).item() == pytest.approx(expected)
    assert frechet_distance(zero, two, zero, one).item() == pytest.approx(expected)
    assert frechet_distance(zero, one, zero, one).item() == pytest.approx(0, abs=1e-9)


class Features(torch.nn.Module):
    num_features = 6

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1)


def test_it_is_that_of_torchmetrics_in_other_features():
    real, made = normal(40, 6).float(), 0.5 + 1.5 * normal(30, 6).float()
    metric, peer = FrechetFeatureDistance(6), FrechetInceptionDistance(Features())
    for kind, samples in ((True, real), (False, made)):
        for part in samples.split(7):
            metric.update(part, real=kind)
        peer.update(samples.view(-1, 1, 2, 3), real=kind)
    assert metric.compute().item() == pytest.approx(peer.compute().item(), rel=1e-4)


def test_large_offsets_do_not_hurt():
    samples = normal(50, 3)
    metric = FrechetFeatureDistance(3)
    metric.update(1_000 + samples, real=True)
    metric.update(1_001 + samples, real=False)
    assert metric.compute().item() == pytest.approx(3, rel=1e-5)


def test_bad_input_is_refused():
    metric = FrechetFeatureDistance(3)
    with pytest.raises(ValueError, match=r"\[n, 3\]"):
        metric.update(normal(4, 2), real=True)
    metric.update(normal(4, 3), real=True)
    metric.update(normal(1, 3), real=False)
    with pytest.raises(ValueError, match="4 real and 1 generated"):
        metric.compute()
