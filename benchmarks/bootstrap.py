"""Interquartile means and bootstrap intervals: what few runs of reinforcement learning say, and how surely."""

from collections.abc import Callable, Sequence

import numpy as np

RESAMPLES = 10_000
LEVEL = 0.95

Statistic = Callable[[np.ndarray], np.ndarray]
"""Reduces the last axis of an array."""


def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """Mean of the middle half of the last axis: a quarter of the values, rounded down, is cut from either end.

    Source: Agarwal et al. 2021 (arXiv 2108.13264), section 4.3; rliable computes it as ``scipy.stats.trim_mean(values, 0.25)``.
    """
    cut = values.shape[-1] // 4
    return np.sort(values, axis=-1)[..., cut : values.shape[-1] - cut].mean(axis=-1)


def mean(values: np.ndarray) -> np.ndarray:
    """Mean of the last axis."""
    return values.mean(axis=-1)


def bootstrap_interval(values: Sequence[float], statistic: Statistic = mean) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of a statistic of the runs of one task, always with the same random numbers.

    Args:
        values: one value a run.
        statistic: what the interval is of.

    Raises:
        ValueError: if there are fewer than two runs.

    Source: Efron & Tibshirani 1993, section 13.3; Agarwal et al. 2021, section 4.1. With a single task the stratified bootstrap
    is the plain one.
    """
    if len(values) < 2:
        raise ValueError(f"an interval needs at least two runs, got {len(values)}")
    chosen = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(statistic(np.asarray(values)[chosen]), [tail, 1 - tail])
    return float(low), float(high)
