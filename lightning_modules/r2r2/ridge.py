"""Linear probes: how much of a quantity can be read off features (without Lightning).

Shape suffixes: N samples, d features, k targets.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torchmetrics import Metric

SMALLEST_STD = 1e-6


class RidgeProbe(NamedTuple):
    """An affine map from features to targets.

    Attributes:
        weight_dk: ``[d, k]``.
        bias_k: ``[k]``.
    """

    weight_dk: Tensor
    bias_k: Tensor

    def __call__(self, features_Nd: Tensor) -> Tensor:
        """Predict the targets, ``[N, k]``."""
        return features_Nd.float() @ self.weight_dk + self.bias_k


def fit_ridge(features_Nd: Tensor, targets_Nk: Tensor, strength: float = 1e-3) -> RidgeProbe:
    r"""Fit a ridge regression with a free constant, in closed form.

    .. math::
        W = \big( X^\top X + \lambda I \big)^{-1} X^\top Y, \qquad
        \lambda = \text{strength} \cdot \frac{\lVert X \rVert_F^2}{d}

    with the means of features and targets taken off; relative to their size :math:`\lambda` is the same for features of any scale.

    Args:
        features_Nd: features, shape ``[N, d]``.
        targets_Nk: what they should predict, shape ``[N, k]``.
        strength: the penalty, as a share of the mean squared length of a feature.

    Raises:
        ValueError: if the numbers of samples differ or the penalty is not positive.
    """
    if len(features_Nd) != len(targets_Nk) or strength <= 0:
        raise ValueError(f"a ridge probe needs as many targets as features and a positive strength, got {len(targets_Nk)} targets, "
                         f"{len(features_Nd)} features and {strength=}")  # fmt: skip
    X, Y = features_Nd.cpu().double(), targets_Nk.cpu().double()  # in double, which not every accelerator has
    x_mean, y_mean = X.mean(dim=0), Y.mean(dim=0)
    X, Y = X - x_mean, Y - y_mean
    d = X.shape[1]
    penalty = strength * X.square().sum().clamp_min(torch.finfo(X.dtype).tiny) / d
    W = torch.linalg.solve(X.T @ X + penalty * torch.eye(d, dtype=X.dtype), X.T @ Y)
    weight, bias = (value.float().to(features_Nd.device) for value in (W, y_mean - x_mean @ W))
    return RidgeProbe(weight, bias)


class StandardisedProbe:
    """A ridge regression of targets that were given mean 0 and variance 1 on the samples it was fitted to.

    Args:
        features_Nd: features, shape ``[N, d]``.
        targets_Nk: what they should predict, shape ``[N, k]``; constant targets are nothing to predict and stay constant.
    """

    def __init__(self, features_Nd: Tensor, targets_Nk: Tensor) -> None:
        self.mean_k, self.std_k = targets_Nk.mean(dim=0), targets_Nk.std(dim=0).clamp_min(SMALLEST_STD)
        self.probe = fit_ridge(features_Nd, self._standardised(targets_Nk))

    def __call__(self, features_Nd: Tensor, targets_Nk: Tensor) -> tuple[Tensor, Tensor]:
        """Return predictions and targets of other samples, both standardised, ``[N, k]``."""
        return self.probe(features_Nd), self._standardised(targets_Nk)

    def _standardised(self, targets_Nk: Tensor) -> Tensor:
        return (targets_Nk - self.mean_k) / self.std_k


class RelativeError(Metric):
    """Squared error over the squared size of the targets: 0 is perfect, 1 is no better than to predict 0."""

    squared_error: Tensor
    squared_size: Tensor

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for name in ("squared_error", "squared_size"):
            self.add_state(name, torch.tensor(0.0), dist_reduce_fx="sum")

    def update(self, predicted_Nk: Tensor, targets_Nk: Tensor) -> None:
        """Add some samples, ``[N, k]`` each."""
        self.squared_error += (predicted_Nk - targets_Nk).square().sum()
        self.squared_size += targets_Nk.square().sum()

    def compute(self) -> Tensor:
        """Return the relative error of all samples, a scalar."""
        return self.squared_error / self.squared_size
