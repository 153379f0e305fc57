"""Grid search on validation data, the same for every variant of an experiment."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.experiments import Tuning, Value
from benchmarks.jobs import Job


def grid_settings(tuning: Tuning) -> Iterator[dict[str, Value]]:
    """Yield all combinations of the grid."""
    for values in itertools.product(*tuning.grid.values()):
        yield dict(zip(tuning.grid, values, strict=True))


def validation_value(job: Job, tuning: Tuning) -> float:
    """Return the best finite validation value of a finished run; the worst possible one if it has none."""
    finite = [value for value in job.logged(tuning.metric) if math.isfinite(value)]
    if not finite:
        return -math.inf if tuning.mode == "max" else math.inf
    return max(finite) if tuning.mode == "max" else min(finite)


def best_settings(jobs: Sequence[Job], tuning: Tuning) -> dict[str, Mapping[str, Value]]:
    """Return for each variant the setting of its best finished tuning run; of equals the first in the grid."""
    found: dict[str, tuple[float, Mapping[str, Value]]] = {}
    sign = 1 if tuning.mode == "max" else -1
    for job in jobs:
        if job.finished():
            value = sign * validation_value(job, tuning)
            if job.variant not in found or value > found[job.variant][0]:
                found[job.variant] = (value, job.setting)
    return {variant: setting for variant, (_, setting) in found.items()}
