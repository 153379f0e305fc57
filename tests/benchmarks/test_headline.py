import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import headline
from benchmarks.experiments import Calculation, Experiment, Metric, Tuning, Variant
from benchmarks.pool import LocalExecutor, visible_gpus
from benchmarks.tuning import grid_settings

TRAIN = (sys.executable, str(Path(__file__).with_name("fake_train.py")))
GRID = (0.001, 0.002, 0.004)


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """Return a function that runs the headline command on two fake experiments and gives its status and its result file."""
    config = tmp_path / "config.yaml"
    config.write_text("# fake\nmodel: {}\n")
    behaviours: dict[str, str] = {}

    def variant(name: str, best_lr: float) -> Variant:
        return Variant(name.upper(), str(config), {"best_lr": best_lr, "behaviour": behaviours.get(name, "work")})

    def experiments(method: str):
        trained = Experiment(
            name="solve",
            title="Solving",
            description="Who solves more.",
            variants={"ours": variant("ours", 0.004), "other": variant("other", 0.001)},
            metrics=(Metric("test/solved", "solved", percent=True),),
            steps=30,
            overrides={"data.init_args.seed": 0},
            curve=("test/solved_at_16",),
            tuning=Tuning({"lr": GRID}, metric="val/solved"),
        )
        computed = Calculation(
            "closed_form",
            "Closed form",
            "No training.",
            {"only": "only"},
            (Metric("error", "error"),),
            compute=lambda variant, seed: {"error": 10.0 * seed},
        )
        return {"solve": trained, "closed_form": computed}

    monkeypatch.setattr(headline, "load_experiments", experiments)

    def run(*words: str):
        words = ("fake", "--runs-root", str(tmp_path / "runs"), "--results-root", str(tmp_path / "results"), *words)
        status = headline.main(words, TRAIN)
        path = tmp_path / "results" / "fake.json"
        return status, json.loads(path.read_text()) if path.exists() else None

    run.folder, run.config, run.behaviours = tmp_path, config, behaviours
    return run


def calls(folder: Path) -> list[str]:
    path = folder / "runs" / "calls.txt"
    return path.read_text().splitlines() if path.exists() else []


def test_tuning_takes_the_best_validation_and_all_seeds_use_it(bench):
    status, content = bench("--seeds", "2", "--jobs", "4", "--only", "solve")
    assert status == 0
    found = {(r["variant"], r["seed"], r["metric"]): r["value"] for r in content["records"]}
    # the fake's validation is best at its best_lr; its test value is lr times seed
    assert found[("ours", 2, "test/solved")] == pytest.approx(0.008)
    assert found[("other", 2, "test/solved")] == pytest.approx(0.002)
    assert found[("ours", 1, "test/solved_at_16")] == pytest.approx(0.004)
    assert len(found) == 2 * 2 * 2
    assert {(r["steps"], r["seconds"], r["params"]) for r in content["records"]} == {(30, 1.5, 7)}
    runs = content["experiments"]["solve"]["tuning"]["runs"]
    assert content["experiments"]["solve"]["tuning"]["steps"] == 10
    assert {(r["variant"], r["setting"]["lr"]) for r in runs if r["chosen"]} == {("ours", 0.004), ("other", 0.001)}
    assert len(runs) == 6
    assert content["meta"]["command"].startswith("python -m benchmarks.headline fake")


def test_finished_runs_are_not_repeated_and_changed_ones_are(bench):
    bench("--seeds", "1", "--jobs", "4", "--only", "solve")
    first = calls(bench.folder)
    assert len(first) == 2 * 3 + 2
    bench("--seeds", "2", "--jobs", "4", "--only", "solve")
    assert len(calls(bench.folder)) == len(first) + 2
    bench("--seeds", "2", "--jobs", "4", "--only", "solve", "--steps", "60", "--variants", "ours")
    assert len(calls(bench.folder)) == len(first) + 2 + 3 + 2
    bench.config.write_text("# another comment\nmodel: {}\n")
    bench("--seeds", "2", "--only", "solve")
    assert len(calls(bench.folder)) == len(first) + 2 + 3 + 2
    bench.config.write_text("model: {width: 2}\n")
    bench("--seeds", "1", "--jobs", "4", "--only", "solve")
    assert len(calls(bench.folder)) == 2 * len(first) + 2 + 3 + 2


def test_an_interrupted_run_goes_on(bench):
    bench.behaviours["ours"] = "interrupt"
    status, content = bench("--seeds", "1", "--jobs", "4", "--only", "solve")
    assert status == 1
    assert {r["variant"] for r in content["records"]} == {"other"}
    for _ in range(2):
        status, content = bench("--seeds", "1", "--jobs", "4", "--only", "solve")
    assert status == 0
    assert {r["variant"] for r in content["records"]} == {"ours", "other"}
    how = [line.split()[1] for line in calls(bench.folder) if "/ours/" in line]
    assert how == ["start"] * 3 + ["resume"] * 3 + ["start", "resume"]


def test_a_failure_is_shown_and_the_others_go_on(bench, capsys):
    bench.behaviours["ours"] = "fail"
    status, content = bench("--seeds", "1", "--only", "solve", "closed_form")
    assert status == 1
    assert {(r["experiment"], r["variant"]) for r in content["records"]} == {("solve", "other"), ("closed_form", "only")}
    shown = capsys.readouterr().out
    assert shown.count("learning rate must be positive") == 3
    assert all(part in shown for part in ("FAILED", "exit status 2", "[6/6]", "left"))


def test_one_experiment_replaces_only_its_own_records(bench):
    bench("--seeds", "1", "--jobs", "4")
    status, content = bench("--seeds", "3", "--only", "closed_form")
    assert status == 0
    assert [r["value"] for r in content["records"] if r["experiment"] == "closed_form"] == [10.0, 20.0, 30.0]
    assert {r["variant"] for r in content["records"] if r["experiment"] == "solve"} == {"ours", "other"}
    report = (bench.folder / "results" / "fake.md").read_text()
    # (10 + 20 + 30) / 3, deviation 10, standard error 10 / sqrt(3)
    assert "| only | 20.0 ± 5.8 | 3 |" in report
    assert "| OURS | 0.4 | 7 | 30 | 2 | 1 |" in report
    assert "`python -m benchmarks.headline fake" in report


def test_report_only_needs_no_run(bench):
    bench("--seeds", "1", "--jobs", "4")
    report = bench.folder / "results" / "fake.md"
    text, started = report.read_text(), calls(bench.folder)
    report.unlink()
    assert bench("--report-only")[0] == 0
    assert report.read_text() == text
    assert calls(bench.folder) == started


def test_submitit_runs_end_to_end_on_its_local_executor(bench):
    pytest.importorskip("submitit")
    words = ("--slurm", "--cluster", "local", "--slurm-option", "timeout_min=2", "--seeds", "1", "--only", "solve")
    bench.behaviours["other"] = "fail"
    status, content = bench(*words, "--variants", "ours")
    assert status == 0
    assert [r["value"] for r in content["records"] if r["metric"] == "test/solved"] == [pytest.approx(0.004)]
    assert len(calls(bench.folder)) == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--only", "solv"), "unknown experiment solv; there are: closed_form, solve"),
        (("--variants", "our"), "unknown variant our; there are: only, other, ours"),
        (("--seeds", "0"), "not a positive number"),
        (("--slurm", "--slurm-option", "gpu"), "not name=value"),
    ],
)
def test_a_wrong_word_is_one_clear_line(bench, capsys, words, message):
    with pytest.raises(SystemExit) as stop:
        bench(*words)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_a_missing_metric_names_the_run(bench, capsys, monkeypatch):
    load = headline.load_experiments("fake")
    solve = load["solve"]
    wrong = Experiment(**{**vars(solve), "metrics": (Metric("test/solvd", "solved"),)})
    monkeypatch.setattr(headline, "load_experiments", lambda method: {"solve": wrong})
    with pytest.raises(SystemExit):
        bench("--seeds", "1", "--jobs", "4")
    assert "did not measure test/solvd; it has: test/solved, test/solved_at_16" in capsys.readouterr().err


def test_a_learning_curve_is_every_logged_value_by_step(bench, capsys, monkeypatch):
    solve = replace(headline.load_experiments("fake")["solve"], learning_curve=("val/solved", "val/solvd"))
    monkeypatch.setattr(headline, "load_experiments", lambda method: {"solve": solve})
    status, content = bench("--seeds", "1", "--jobs", "4", "--variants", "ours")
    assert status == 0
    # the fake logs 0.5 at step 0 and 1 at step 1 with the best learning rate, and nothing at step 2
    found = {r["metric"]: r["value"] for r in content["records"] if r["metric"].startswith("val/")}
    assert found == {"val/solved_at_0": pytest.approx(0.5), "val/solved_at_1": pytest.approx(1.0)}
    assert "no run of solve logged val/solvd" in capsys.readouterr().out


def test_one_run_measures_several_rows(bench, capsys, monkeypatch):
    solve = headline.load_experiments("fake")["solve"]
    shared = {"tuning": None, "curve": ("test/solved",), "rows": {"solved": "all", "solved_at_16": "early"}}
    rows = replace(solve, variants={"ours": solve.variants["ours"]}, metrics=(Metric("test/{row}", "share"),), **shared)
    monkeypatch.setattr(headline, "load_experiments", lambda method: {"solve": rows})
    bench.config.write_text("# fake\nmodel: {}\n")
    rows.variants["ours"].overrides["lr"] = 0.25  # type: ignore[index]
    assert bench("--variants", "ours", "--seeds", "2")[0] == 0
    status, content = bench("--seeds", "2")
    assert status == 0
    found = {(r["variant"], r["seed"], r["metric"]): r["value"] for r in content["records"]}
    # the fake measures lr times seed as solved, and lr as solved_at_16; a name without {row} is the same in all rows
    assert found[("solved", 2, "test/{row}")] == found[("solved_at_16", 2, "test/solved")] == pytest.approx(0.5)
    assert found[("solved_at_16", 2, "test/{row}")] == pytest.approx(0.25)
    assert len(found) == 2 * 2 * 2
    assert len([call for call in calls(bench.folder) if call.endswith("start")]) == 2
    report = (bench.folder / "results" / "fake.md").read_text()
    assert "| early | 0.25 ± 0 |" in report
    with pytest.raises(ValueError, match="rows are measured by one variant, not by ours, other"):
        replace(rows, variants=solve.variants)
    missing = replace(rows, rows={"unsolved": "none"})
    monkeypatch.setattr(headline, "load_experiments", lambda method: {"solve": missing})
    with pytest.raises(SystemExit):
        bench("--seeds", "1")
    assert "did not measure test/unsolved" in capsys.readouterr().err


def test_parallel_jobs_get_a_core_and_a_gpu_each(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert visible_gpus() == ["3", "5"]
    executor = LocalExecutor(3)
    assert [executor.environment(slot)["CUDA_VISIBLE_DEVICES"] for slot in range(3)] == ["3", "5", "3"]
    assert executor.environment(0)["OMP_NUM_THREADS"] == "1"
    assert LocalExecutor(1).environment(0) == {}


def test_a_grid_is_the_product_of_its_values():
    tuning = Tuning({"lr": (1, 2), "width": (3,)}, metric="val/loss", mode="min")
    assert list(grid_settings(tuning)) == [{"lr": 1, "width": 3}, {"lr": 2, "width": 3}]


def test_tuning_of_some_variants_keeps_that_of_the_others():
    old = {"runs": [{"variant": "a", "value": 1}, {"variant": "b", "value": 2}]}
    new = {"runs": [{"variant": "b", "value": 3}]}
    headline._keep_tuning(old, new, ["b"])
    assert new["runs"] == [{"variant": "a", "value": 1}, {"variant": "b", "value": 3}]


def test_long_curves_are_thinned():
    short = {step: float(step) for step in range(50)}
    assert headline.thinned(short) == short
    assert headline.thinned({}) == {}
    long = headline.thinned({10 * step: float(step) for step in range(1, 102)})
    assert list(long)[-2:] == [980, 1010]
    assert len(long) == 34
    assert all(value == step / 10 for step, value in long.items())
