import math
from pathlib import Path

import pytest

from benchmarks.results import Aggregate, Record, Results, aggregate, by_variant


def record(experiment="sudoku", variant="sheaf", metric="test/solved", seed=1, value=0.5) -> Record:
    return Record(experiment, variant, metric, seed, value, steps=100, seconds=2.0, params=10)


def test_mean_and_standard_error_by_hand():
    # deviations -1, 0, 1: sample variance 1, standard error 1 / sqrt(3)
    found = aggregate([1.0, 2.0, 3.0])
    assert (found.mean, found.n) == (2.0, 3)
    assert found.standard_error == pytest.approx(1 / math.sqrt(3))


def test_one_run_has_no_standard_error():
    assert aggregate([0.25]) == Aggregate(0.25, None, 1)
    with pytest.raises(ValueError, match="nothing to aggregate"):
        aggregate([])


def test_only_one_metric_is_collected_and_variants_stay_apart():
    records = [record(value=0.2), record(seed=2, value=0.4), record(metric="other", value=9.0), record(variant="mpnn", value=1.0)]
    assert by_variant(records, "test/solved") == {"sheaf": [0.2, 0.4], "mpnn": [1.0]}


def test_a_new_run_replaces_only_its_own_experiment():
    results = Results([record(), record("kkt"), record(variant="mpnn")])
    results.replace([record(value=0.9)])
    assert results.records == [record("kkt"), record(value=0.9)]


def test_a_new_run_of_some_variants_keeps_the_others():
    results = Results([record(), record(seed=2), record(variant="mpnn"), record("kkt")])
    results.replace([record(value=0.9)], variants=["sheaf"])
    assert results.records == [record(variant="mpnn"), record("kkt"), record(value=0.9)]


def test_nothing_new_replaces_nothing():
    results = Results([record()])
    results.replace([])
    assert results.records == [record()]


def test_saved_results_are_read_again(tmp_path: Path):
    path = tmp_path / "results" / "method.json"
    written = Results([record(), record(seed=2, value=1 / 3)], {"sudoku": {"title": "Sudoku"}}, {"git": None})
    written.save(path)
    assert Results.load(path) == written
    assert [line.startswith("  {") for line in path.read_text().splitlines()].count(True) == 2


def test_a_diverged_run_is_kept_as_nan(tmp_path: Path):
    path = tmp_path / "method.json"
    Results([record(value=math.nan)]).save(path)
    assert "NaN" not in path.read_text()
    assert math.isnan(Results.load(path).records[0].value)


def test_a_broken_file_is_named(tmp_path: Path):
    path = tmp_path / "method.json"
    path.write_text('{"records": [{"experiment": "a"}]}')
    with pytest.raises(ValueError, match="method.json is not a result file"):
        Results.load(path)
    assert Results.load(tmp_path / "none.json") == Results()
