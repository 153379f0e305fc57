"""The table that ends a run."""

from pathlib import Path

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


def test_a_name_of_ones_own_has_no_baselines(tmp_path: Path):
    table = result_table(finished(tmp_path, "my/experiment", solved=1.0), tmp_path)
    assert len(table.splitlines()) == 3
