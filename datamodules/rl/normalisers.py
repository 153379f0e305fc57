"""Running mean and variance of a stream."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class RunningMeanStd:
    r"""Mean and variance of all that was seen, by merging batches.

    With counts :math:`n`, means :math:`\mu` and sums of squared deviations :math:`M` of two streams a and b,

    .. math::
        \delta = \mu_b - \mu_a, \qquad n = n_a + n_b, \qquad \mu = \mu_a + \delta\, n_b / n, \qquad
        M = M_a + M_b + \delta^2\, n_a n_b / n

    are those of both together, to rounding: batches, or the streams of several processes, may be merged in any order. To merge
    processes repeatedly, merge what each of them saw since the last time, else the common past counts several times.

    Args:
        shape: shape of one item.
        epsilon: added to the variance before the root.

    Attributes:
        count: items seen.
        mean, m2: float64, shape ``shape``; mean 0 before data.

    Source: Chan, Golub, LeVeque 1979 (parallel form of Welford's update).
    """

    def __init__(self, shape: Sequence[int], epsilon: float = 1e-8) -> None:
        self.epsilon = epsilon
        self.count = 0
        self.mean = torch.zeros(tuple(shape), dtype=torch.float64)
        self.m2 = torch.zeros_like(self.mean)

    @property
    def variance(self) -> Tensor:
        """Population variance, float64; 1 before data."""
        return self.m2 / self.count if self.count else torch.ones_like(self.mean)

    def update(self, batch: Tensor) -> None:
        """Take in ``batch``, shape ``[n, *shape]``.

        Raises:
            ValueError: if the shape is another.
            FloatingPointError: if a value is NaN or infinite, for no later value could mend the mean.
        """
        if batch.shape[1:] != self.mean.shape:
            raise ValueError(f"the normaliser expects items of shape {list(self.mean.shape)}, got {list(batch.shape[1:])}")
        if not batch.isfinite().all():
            raise FloatingPointError("the normaliser got a value that is not finite: check observations and rewards")
        if len(batch):
            batch = batch.to(self.mean)
            mean = batch.mean(0)
            self._merge(len(batch), mean, (batch - mean).square().sum(0))

    def merge(self, other: "RunningMeanStd") -> None:
        """Take in all that ``other`` has seen."""
        if other.count:
            self._merge(other.count, other.mean, other.m2)

    def normalise(self, x: Tensor, clip: float = math.inf) -> Tensor:
        """Return ``(x - mean) / sqrt(variance + epsilon)`` cut to ``[-clip, clip]``, in the shape and floating type of ``x``."""
        dtype = x.dtype if x.is_floating_point() else torch.float32
        mean = self.mean.to(x.device, dtype)
        std = (self.variance + self.epsilon).sqrt().to(x.device, dtype)
        return ((x - mean) / std).clamp(-clip, clip)

    def denormalise(self, x: Tensor) -> Tensor:
        """Undo :meth:`normalise` where it cut nothing: ``x sqrt(variance + epsilon) + mean``."""
        return x * (self.variance + self.epsilon).sqrt().to(x) + self.mean.to(x)

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "mean": self.mean.clone(), "m2": self.m2.clone()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Raises ValueError if the state is one of another shape."""
        saved = state_dict["mean"].shape
        if saved != self.mean.shape:
            own = list(self.mean.shape)
            raise ValueError(
                f"the saved normaliser is for items of shape {list(saved)}, this one for {own}: use the same environment"
            )
        self.count = state_dict["count"]
        self.mean, self.m2 = state_dict["mean"].clone(), state_dict["m2"].clone()

    def _merge(self, count: int, mean: Tensor, m2: Tensor) -> None:
        total = self.count + count
        delta = mean - self.mean
        self.mean = self.mean + delta * (count / total)
        self.m2 = self.m2 + m2 + delta.square() * (self.count * count / total)
        self.count = total
