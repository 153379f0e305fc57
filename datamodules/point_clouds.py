"""Points of a mixture of Gaussians, for generative models whose right answer is known."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from datamodules.base import BatchKey, LeydenDataModule

SPLITS = ("train", "val", "test")


class SeededPoints:
    """Points, each with a seed for whatever is random about it.

    Args:
        points: ``[n, d]``.
        seed: seed of the seeds; None: the seed of a point is its number.
    """

    def __init__(self, points: np.ndarray, seed: int | None = None) -> None:
        self.points, self.seed = points, seed

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, key: BatchKey) -> dict[str, Tensor]:
        """Return ``point`` float32 ``[local batch, d]`` and ``seed`` int64 ``[local batch]``."""
        return {"point": torch.from_numpy(self.points[key.local_indices]), "seed": torch.from_numpy(key.seeds(self.seed))}


class GaussianMixtureDataModule(LeydenDataModule):
    r"""Round Gaussians with centres on a circle in the plane, or anywhere.

    .. math::
        x \sim \sum_k w_k \, \mathcal N(\mu_k, \varsigma^2 I), \qquad \mu_k = r \, (\cos, \sin)(2 \pi k / K)

    One component is a single Gaussian, a standard deviation of 0 gives points. The model is told ``means``, ``stds`` and
    ``weights``, with which the best denoiser is known.

    Args:
        num_components: K; None: as many as there are means, else 6.
        radius: r.
        std: standard deviation of each component.
        weights: w, made to sum to 1; None: 0.1, 0.15, 0.2, 0.25, 0.1, 0.2 for six components, else equal ones.
        means: centres in any number of dimensions, in the place of the circle.
        train_size: number of training points.
        val_size: number of validation points.
        test_size: number of test points.
        batch_size: global batch size.
        eval_batch_size: global batch size of validation, test and prediction; default ``batch_size``.
        num_workers: loader processes per rank.
        seed: seed of the data order and of the training seeds.
        generator_seed: seed of the points, apart from ``seed`` so that runs of several seeds share their data.

    Raises:
        ValueError: if numbers are out of range or do not fit together.
    """

    smoke = {"train_size": 32, "val_size": 8, "test_size": 8, "batch_size": 8, "eval_batch_size": 8, "num_workers": 0}

    train_set: SeededPoints
    val_set: SeededPoints
    test_set: SeededPoints

    def __init__(
        self,
        num_components: int | None = None,
        radius: float = 1.0,
        std: float = 0.15,
        weights: list[float] | None = None,
        means: list[list[float]] | None = None,
        train_size: int = 10_000,
        val_size: int = 1_000,
        test_size: int = 1_000,
        batch_size: int = 256,
        eval_batch_size: int | None = None,
        num_workers: int = 0,
        seed: int = 0,
        generator_seed: int = 0,
    ) -> None:
        super().__init__(batch_size, eval_batch_size, num_workers, seed)
        count = num_components if num_components is not None else len(means) if means is not None else 6
        if means is None:
            angles = [2 * math.pi * k / max(count, 1) for k in range(count)]
            means = [[radius * math.cos(angle), radius * math.sin(angle)] for angle in angles]
        if weights is None:
            weights = [0.1, 0.15, 0.2, 0.25, 0.1, 0.2] if count == 6 else [1.0] * count
        if count < 1 or len(means) != count or len(weights) != count or len({len(mean) for mean in means}) > 1:
            raise ValueError(
                f"{count} components need as many means of equal length and weights, "
                f"got {len(means)} means and {len(weights)} weights"
            )
        if std < 0 or min(weights) <= 0:
            raise ValueError(f"{std=} must not be negative and {weights=} must be positive")
        for name, number in {"train_size": train_size, "val_size": val_size, "test_size": test_size}.items():
            if number < 1:
                raise ValueError(f"{name}={number} must be at least 1")
        self.means, self.std, self.weights = means, std, [weight / sum(weights) for weight in weights]
        self.sizes = dict(zip(SPLITS, (train_size, val_size, test_size), strict=True))
        self.generator_seed = generator_seed

    def setup(self, stage: str) -> None:
        """Draw the points."""
        drawn = {
            split: draw(self.means, self.std, self.weights, size, self._generator(split)) for split, size in self.sizes.items()
        }
        self.train_set = SeededPoints(drawn["train"], self.seed)
        self.val_set, self.test_set = SeededPoints(drawn["val"]), SeededPoints(drawn["test"])

    def model_arguments(self) -> dict[str, Any]:
        stds = [self.std] * len(self.means)
        return {"dimension": len(self.means[0]), "means": self.means, "stds": stds, "weights": self.weights}

    def points(self, split: str) -> Tensor:
        """Return all points of ``train``, ``val`` or ``test``, float32 ``[n, d]``."""
        chosen: SeededPoints = getattr(self, f"{split}_set")
        return torch.from_numpy(chosen.points)

    def _generator(self, split: str) -> np.random.Generator:
        return np.random.default_rng((self.generator_seed, SPLITS.index(split)))


def draw(
    means: Sequence[Sequence[float]], std: float, weights: Sequence[float], size: int, generator: np.random.Generator
) -> np.ndarray:
    """Draw points of a mixture of round Gaussians, float32 ``[size, d]``."""
    centres_Kd = np.array(means)
    chosen_nd = centres_Kd[generator.choice(len(weights), size=size, p=np.array(weights) / sum(weights))]
    return (chosen_nd + std * generator.standard_normal(chosen_nd.shape)).astype(np.float32)
