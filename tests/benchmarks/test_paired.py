from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.experiments import Experiment, Metric, PairedRatio, Variant
from benchmarks.paired import difference_interval, paired_differences, paired_table, read_outcomes
from benchmarks.report import describe, results_table
from benchmarks.results import Record

RATIO = PairedRatio("chair", "wrong, minus plain", "balanced", "wrong", "named", against="plain")
EXPERIMENT = Experiment(
    "e", "E", "", {name: Variant(name, "c.yaml") for name in ("plain", "steered", "other")}, [Metric("m", "m")], 1, paired=[RATIO]
)


def write(folder: Path, rows: list[tuple[int, int, int]], suite: str = "balanced") -> Path:
    """Write outcomes: sample, wrong, named."""
    folder.mkdir(parents=True)
    lines = [f"{suite},{index},{name},{v}" for index, *values in rows for name, v in zip(("wrong", "named"), values, strict=True)]
    (folder / "outcomes.csv").write_text("\n".join(["suite,index,outcome,value", *lines]))
    return folder


def job(variant: str, seed: int, folder: Path | None) -> Any:
    return SimpleNamespace(variant=variant, seed=seed, finished=lambda: folder)


def origin(variant: str, seed: int) -> Record:
    return Record("e", variant, "m", seed, 0.5, steps=40, seconds=3.0, params=7)


def test_the_difference_of_two_ratios_of_sums(tmp_path: Path):
    plain = write(tmp_path / "a", [(0, 2, 4), (1, 1, 2), (1, 1, 4)])
    steered = write(tmp_path / "b", [(1, 1, 4), (0, 0, 4)])
    sums = read_outcomes(plain / "outcomes.csv")
    assert sums["balanced", "wrong"] == {0: 2, 1: 2}  # two lines of a sample are added
    jobs = [job("plain", 1, plain), job("steered", 1, steered), job("other", 1, None)]
    records = paired_differences(jobs, EXPERIMENT, [origin("plain", 1), origin("steered", 1)])
    assert {record.metric for record in records} == {"chair", "chair_low", "chair_high"}
    assert {(record.variant, record.seed, record.steps, record.params) for record in records} == {("steered", 1, 40, 7)}
    assert records[0].value == pytest.approx(1 / 8 - 4 / 10)


def test_the_interval_covers_a_known_difference_and_pairs_the_samples():
    random = np.random.default_rng(0)
    hard = random.random(2000) < 0.5  # half of the samples are hard for both runs
    plain, better = hard.astype(float), hard & (random.random(2000) < 0.9)
    table = np.stack([better.astype(float), np.ones(2000), plain, np.ones(2000)], axis=1)
    low, high = difference_interval([table])
    shares = better - plain
    error = shares.std() / np.sqrt(2000)
    assert (low, high) == pytest.approx((shares.mean() - 1.96 * error, shares.mean() + 1.96 * error), abs=0.15 * error)
    shuffled = np.concatenate([table[:, :2], random.permutation(table[:, 2:])], axis=1)
    assert np.diff(difference_interval([shuffled])) > 2 * (high - low)
    assert np.diff(difference_interval([table] * 4)) == pytest.approx((high - low) / 2, rel=0.1)


def test_the_table_shows_the_interval():
    records = [origin(variant, 1) for variant in ("plain", "steered")]
    records += [
        Record("e", "steered", f"chair{end}", 1, value, 40, 3.0, 7) for end, value in (("", -0.1), ("_low", -0.2), ("_high", 0.05))
    ]
    text = results_table(describe(EXPERIMENT, "method"), records)
    assert "wrong, minus plain (%), difference [95 % interval]" in text
    assert "-10.0 [-20.0, 5.0]" in text
    assert "| plain | 0.5 | – |" in text


def test_what_cannot_be_paired(tmp_path: Path):
    plain = read_outcomes(write(tmp_path / "a", [(0, 1, 2)]) / "outcomes.csv")
    other = read_outcomes(write(tmp_path / "b", [(5, 1, 2)]) / "outcomes.csv")
    elsewhere = read_outcomes(write(tmp_path / "c", [(0, 1, 2)], "test") / "outcomes.csv")
    with pytest.raises(ValueError, match="other samples"):
        paired_table(plain, other, RATIO)
    with pytest.raises(ValueError, match="the run has: test/wrong, test/named"):
        paired_table(plain, elsewhere, RATIO)
