import pytest
import torch
from torchmetrics.image.kid import poly_mmd

from lightning_modules.generative.kernel_distance import KernelFeatureDistance


def features(count: int, shift: float, seed: int) -> torch.Tensor:
    return torch.randn(count, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + shift


def measured(real: torch.Tensor, made: torch.Tensor, parts: int = 1) -> float:
    metric = KernelFeatureDistance(5)
    for kind, samples in ((True, real), (False, made)):
        for part in samples.tensor_split(parts):
            metric.update(part, real=kind)
    return metric.compute().item()


def test_it_is_the_sum_over_all_pairs():
    real, made = features(7, 0.0, 0), features(9, 0.6, 1)

    def kernel(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x @ y.T / 5 + 1) ** 3

    def off_diagonal(x: torch.Tensor) -> torch.Tensor:
        gram = kernel(x, x)
        return (gram.sum() - gram.trace()) / (len(x) * (len(x) - 1))

    expected = off_diagonal(real) + off_diagonal(made) - 2 * kernel(real, made).mean()
    assert measured(real, made) == pytest.approx(expected.item(), rel=1e-5)
    assert measured(real, made, parts=3) == pytest.approx(expected.item(), rel=1e-5)


def test_it_agrees_with_the_kid_of_torchmetrics():
    real, made = features(20, 0.0, 0), features(20, 0.6, 1)
    assert measured(real, made) == pytest.approx(poly_mmd(real, made).item(), rel=1e-5)


def test_equal_distributions_have_about_none_and_others_more():
    real = features(2_000, 0.0, 0)
    assert abs(measured(real, features(2_000, 0.0, 1))) < 0.02
    assert measured(real, features(2_000, 0.5, 1)) > 0.5


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="too many third moments"):
        KernelFeatureDistance(2048)
    metric = KernelFeatureDistance(5)
    with pytest.raises(ValueError, match=r"expected \[n, 5\]"):
        metric.update(torch.zeros(3, 4), real=True)
    metric.update(torch.zeros(3, 5), real=True)
    with pytest.raises(ValueError, match="3 real and 0 generated"):
        metric.compute()
