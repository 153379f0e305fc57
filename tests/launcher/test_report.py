"""The table that ends a run."""

import json
from pathlib import Path

import pytest

from launcher.report import result_table
from launcher.run_folder import RunFolder


def finished(root: Path, name: str, **metrics: float | None) -> RunFolder:
    folder = RunFolder.create(root, name, "fit")
    folder.write_summary({"metrics": {f"test/{key}": value for key, value in metrics.items()}})
    return folder


def row(table: str, name: str) -> list[str]:
    (line,) = [line for line in table.splitlines() if line.startswith(name)]
    return line.split()


def test_baselines_on_the_same_data_stand_beside(tmp_path: Path):
    finished(tmp_path, "sheaf_admm/sudoku_mpnn", solved=0.25)
    newest = finished(tmp_path, "sheaf_admm/sudoku_mpnn", solved=0.5)
    finished(tmp_path, "sheaf_admm/sudoku_6x6", solved=0.75)
    table = result_table(finished(tmp_path, "sheaf_admm/sudoku", solved=0.875, loss=None), tmp_path)
    assert row(table, "sheaf_admm/sudoku (this run)")[-2:] == ["-", "0.875"]
    assert row(table, "sheaf_admm/sudoku_mpnn (run")[-1] == "0.5"
    assert f"(run {newest.number})" in table
    assert "6x6" not in table


def test_another_method_on_the_same_task_is_a_baseline_too(tmp_path: Path):
    finished(tmp_path, "sac/pendulum", return_mean=-150.0)
    finished(tmp_path, "sac/hopper", return_mean=3_000.0)
    table = result_table(finished(tmp_path, "protosac/pendulum", return_mean=-160.0), tmp_path)
    assert row(table, "sac/pendulum (run")[-1] == "-150"
    assert "hopper" not in table


def test_the_metric_that_checkpoints_are_chosen_by_stands_first(tmp_path: Path):
    folder = finished(tmp_path, "my/experiment", **dict.fromkeys("abcdefg", 0.0), return_mean=1.0)
    assert result_table(folder, tmp_path, "val/return_mean").split()[:2] == ["test/return_mean", "test/a"]
    assert "return_mean" not in result_table(folder, tmp_path)


def test_published_results_are_of_the_config_as_it_is_and_of_the_longest_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rows = [
        ("sac/pendulum", 100, -9.0),
        *(("sac/pendulum", 500, value) for value in (-1.0, -3.0, None)),
        ("", 500, -7.0),
        ("sac/hopper", 900, 5.0),
    ]
    records = [{"config": c, "steps": steps, "value": v, "metric": "test/return_mean"} for c, steps, v in rows]
    (tmp_path / "docs" / "results").mkdir(parents=True)
    (tmp_path / "docs" / "results" / "protosac.json").write_text(json.dumps({"records": records}))
    (tmp_path / "docs" / "results" / "speed.json").write_text(json.dumps({"rows": []}))
    monkeypatch.setattr("launcher.report.PROJECT", tmp_path)
    table = result_table(finished(tmp_path, "protosac/pendulum", return_mean=-160.0), tmp_path)
    assert row(table, "sac/pendulum (published)")[-3:] == ["-2", "±", "1.4"]


def test_a_name_of_ones_own_has_no_baselines(tmp_path: Path):
    table = result_table(finished(tmp_path, "my/experiment", solved=1.0), tmp_path)
    assert len(table.splitlines()) == 3
