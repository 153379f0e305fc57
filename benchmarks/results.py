"""Records of measured numbers, kept in ``docs/results/<method>.json``, and their aggregation over seeds."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks.json_files import read_json, write_whole


@dataclass(frozen=True)
class Record:
    """One number that one run measured.

    Attributes:
        experiment, variant, metric, seed: what was measured.
        value: the number; NaN if the run diverged.
        steps: optimiser steps of the run.
        seconds: time of its training.
        params: number of trained parameters.
        config: ``method/task`` of the config file that was run, empty for a variant that changes something in it and for a
            calculation.
    """

    experiment: str
    variant: str
    metric: str
    seed: int
    value: float
    steps: int
    seconds: float
    params: int
    config: str = ""


@dataclass(frozen=True)
class Aggregate:
    """Mean over seeds, standard error of that mean (None for a single run) and number of runs."""

    mean: float
    standard_error: float | None
    n: int


@dataclass
class Results:
    """All that is published about one method.

    Attributes:
        records: the measured numbers.
        experiments: by name, what the report says about an experiment: title, description, columns, variants, figures,
            the command with its revision and machine, and the tuned settings.
        meta: command, revision, versions and machine of the last change.
    """

    records: list[Record] = field(default_factory=list)
    experiments: dict[str, dict[str, Any]] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)

    def replace(self, new: Sequence[Record], variants: Iterable[str] | None = None) -> None:
        """Put the records of one run of one experiment in the place of its earlier ones.

        Args:
            new: records of a single experiment.
            variants: the variants that were run; earlier records of others stay. None replaces the whole experiment.
        """
        if not new:
            return
        (experiment,) = {record.experiment for record in new}
        replaced = None if variants is None else set(variants)

        def stays(record: Record) -> bool:
            return record.experiment != experiment or (replaced is not None and record.variant not in replaced)

        self.records = [*filter(stays, self.records), *new]

    def of(self, experiment: str) -> list[Record]:
        """Return the records of one experiment."""
        return [record for record in self.records if record.experiment == experiment]

    def save(self, path: Path) -> None:
        """Write everything as JSON with one record a line, so that a change is easy to review."""
        lines = ",\n".join("  " + json.dumps(_without_nan(asdict(record)), ensure_ascii=False) for record in self.records)
        experiments = json.dumps(self.experiments, indent=1, ensure_ascii=False)
        meta = json.dumps(self.meta, indent=1)
        write_whole(path, f'{{"records": [\n{lines}\n],\n"experiments": {experiments},\n"meta": {meta}}}\n')

    @classmethod
    def load(cls, path: Path) -> "Results":
        """Read a file that ``save`` wrote; a missing one gives empty results.

        Raises:
            ValueError: if the file is not what ``save`` writes.
        """

        def build(content: dict[str, Any]) -> "Results":
            records = [Record(**_with_nan(record)) for record in content["records"]]
            return cls(records, content["experiments"], content["meta"])

        return read_json(path, build) or cls()


def aggregate(values: Sequence[float]) -> Aggregate:
    r"""Return mean, standard error :math:`s/\sqrt{n}` with the sample deviation :math:`s`, and n.

    Raises:
        ValueError: if there is no value.
    """
    if not values:
        raise ValueError("nothing to aggregate: there is no value")
    n = len(values)
    return Aggregate(fmean(values), stdev(values) / math.sqrt(n) if n > 1 else None, n)


def by_variant(records: Iterable[Record], metric: str) -> dict[str, list[float]]:
    """Collect one metric over the seeds of each variant."""
    values: dict[str, list[float]] = {}
    for record in records:
        if record.metric == metric:
            values.setdefault(record.variant, []).append(record.value)
    return values


def _without_nan(record: Mapping[str, Any]) -> dict[str, Any]:
    """Write a non-finite number as null: JSON has no NaN."""
    return {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in record.items()}


def _with_nan(record: Mapping[str, Any]) -> dict[str, Any]:
    """Read a missing value as NaN."""
    return {key: math.nan if value is None else value for key, value in record.items()}
