"""Differences between variants on the same test samples, with bootstrap intervals over samples."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.bootstrap import LEVEL
from benchmarks.experiments import Experiment, PairedRatio
from benchmarks.jobs import Job
from benchmarks.results import Record

FILE = "outcomes.csv"
LOW, HIGH = "_low", "_high"
RESAMPLES = 10_000

Sums = Mapping[tuple[str, str], Mapping[int, float]]
"""By test set and outcome: the sum of the outcome over what belongs to each sample."""


def paired_differences(jobs: Sequence[Job], experiment: Experiment, records: Sequence[Record]) -> list[Record]:
    r"""Compare the variants with the one that each ratio names, seed by seed.

    The value of a seed is :math:`\sum_i a_i / \sum_i b_i` of the variant minus that of the other. The interval is of its mean over
    seeds, see :func:`difference_interval`, and is recorded with the first seed, as ``<ratio>_low`` and ``<ratio>_high``. Runs
    that kept no outcomes are passed over.

    Args:
        jobs: runs, finished or not.
        experiment: names the ratios.
        records: what the finished runs measured.

    Raises:
        ValueError: if two runs of one seed were tested on other samples, or a run lacks an outcome.
    """
    if not experiment.paired:
        return []
    files = {(job.variant, job.seed): folder / FILE for job in jobs if (folder := job.finished())}
    sums = {run: read_outcomes(file) for run, file in files.items() if file.exists()}
    origin = {(record.variant, record.seed): record for record in records}
    found = []
    for ratio in experiment.paired:
        for variant in experiment.titles:
            seeds = [seed for name, seed in sums if name == variant != ratio.against and (ratio.against, seed) in sums]
            if not seeds:
                continue
            tables = [paired_table(sums[variant, seed], sums[ratio.against, seed], ratio) for seed in seeds]
            low, high = difference_interval(tables)
            numbers = {ratio.name: [float(_difference(table.sum(axis=0))) for table in tables]}
            for name, values in {**numbers, ratio.name + LOW: [low], ratio.name + HIGH: [high]}.items():
                found += [
                    replace(origin[variant, seed], metric=name, value=value) for seed, value in zip(seeds, values, strict=False)
                ]
    return found


def read_outcomes(file: Path) -> Sums:
    """Read what ``callbacks.TestOutcomes`` wrote."""
    sums: dict[tuple[str, str], dict[int, float]] = {}
    with file.open(newline="") as stream:
        for row in csv.DictReader(stream):
            own = sums.setdefault((row["suite"], row["outcome"]), {})
            own[int(row["index"])] = own.get(int(row["index"]), 0.0) + float(row["value"])
    return sums


def paired_table(ours: Sums, theirs: Sums, ratio: PairedRatio) -> np.ndarray:
    """Return for each sample numerator and denominator of the one run and of the other, ``[samples, 4]``."""
    columns = []
    for sums in (ours, theirs):
        for outcome in (ratio.numerator, ratio.denominator):
            if (ratio.suite, outcome) not in sums:
                known = ", ".join("/".join(key) for key in sums)
                raise ValueError(f"{ratio.name} needs the outcome {ratio.suite}/{outcome}; the run has: {known}")
            columns.append(sums[ratio.suite, outcome])
    if any(column.keys() != columns[0].keys() for column in columns):
        raise ValueError(f"{ratio.name} compares runs that were tested on other samples: give their data the same seed")
    return np.array([[column[sample] for column in columns] for sample in sorted(columns[0])])


def difference_interval(tables: Sequence[np.ndarray]) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of the difference of the two ratios, mean over seeds.

    In each resample the samples of every seed are drawn with replacement, the same ones for both runs; always with the same random
    numbers.

    Args:
        tables: what :func:`paired_table` returns, one a seed.

    Source: Efron & Tibshirani 1993, section 13.3.
    """
    random = np.random.default_rng(0)
    differences = []
    for table in tables:
        counts = random.multinomial(len(table), np.full(len(table), 1 / len(table)), size=RESAMPLES)
        differences.append(_difference(counts @ table))
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(np.mean(differences, axis=0), [tail, 1 - tail])
    return float(low), float(high)


def _difference(sums: np.ndarray) -> np.ndarray:
    """Return the one ratio minus the other from sums ``[..., 4]``."""
    return sums[..., 0] / sums[..., 1] - sums[..., 2] / sums[..., 3]
