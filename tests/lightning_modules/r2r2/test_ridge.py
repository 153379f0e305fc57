import numpy as np
import pytest
import torch

from lightning_modules.r2r2.ridge import RelativeError, StandardisedProbe, fit_ridge

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(40, 5, generator=GENERATOR) * torch.tensor([3.0, 1.0, 1.0, 0.2, 0.1]) + 1
Y = torch.randn(40, 2, generator=GENERATOR) + X[:, :2] @ torch.tensor([[1.0, 2.0], [-1.0, 0.5]]) + 4


def test_it_is_a_regression_with_extra_rows():
    """Ridge regression is least squares where sqrt(lambda) I predicts 0."""
    x, y = X.double() - X.double().mean(0), Y.double() - Y.double().mean(0)
    penalty = 0.1 * x.square().sum() / 5
    rows = np.vstack([x.numpy(), penalty.sqrt().item() * np.eye(5)]), np.vstack([y.numpy(), np.zeros((5, 2))])
    W = torch.from_numpy(np.linalg.lstsq(*rows, rcond=None)[0])
    expected = x @ W + Y.double().mean(0)
    assert torch.allclose(fit_ridge(X, Y, 0.1)(X).double(), expected, atol=1e-5)


def test_an_affine_map_is_found():
    y = X @ torch.ones(5, 1) + 3
    assert torch.allclose(fit_ridge(X, y, 1e-9)(X), y, atol=1e-4)


def test_the_scale_of_the_features_does_not_matter():
    assert torch.allclose(fit_ridge(100 * X, Y, 0.1)(100 * X), fit_ridge(X, Y, 0.1)(X), atol=1e-5)


def test_targets_count_in_their_standard_deviations():
    probe = StandardisedProbe(X, Y)
    scaled = StandardisedProbe(X, Y * torch.tensor([1000.0, 1.0]) + 5)
    for ours, theirs in zip(probe(X, Y), scaled(X, Y * torch.tensor([1000.0, 1.0]) + 5), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-3)
    targets = probe(X, Y)[1]
    assert torch.allclose(targets.mean(0), torch.zeros(2), atol=1e-6)
    assert torch.allclose(targets.std(0), torch.ones(2))


def test_a_constant_target_is_finite():
    predicted, targets = StandardisedProbe(X, torch.full((40, 1), 0.1))(X, torch.full((40, 1), 0.1))
    assert (predicted - targets).abs().max() < 0.1


def test_relative_error():
    metric = RelativeError()
    metric.update(torch.tensor([[1.0]]), torch.tensor([[2.0]]))
    metric.update(torch.tensor([[0.0], [0.0]]), torch.tensor([[1.0], [0.0]]))
    assert metric.compute().item() == pytest.approx(2 / 5)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="2 targets, 40 features"):
        fit_ridge(X, Y[:2])
    with pytest.raises(ValueError, match="strength=0"):
        fit_ridge(X, Y, 0)
