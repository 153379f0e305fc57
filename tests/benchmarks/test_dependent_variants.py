import json
import sys
from pathlib import Path

import pytest

from benchmarks import headline
from benchmarks.experiments import Experiment, Metric, Tuning, Variant
from benchmarks.jobs import Job

TRAIN = (sys.executable, str(Path(__file__).with_name("fake_train.py")))
METRICS = (Metric("test/solved", "solved"),)


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """Return a function that runs a teacher, a student of it and a student of the student."""
    config = tmp_path / "config.yaml"
    config.write_text("model: {}\n")
    teacher_options = {"best_lr": 0.1}

    def experiments(method: str):
        student = {"best_lr": 0.1}
        variants = {
            "teacher": Variant("T", str(config), dict(teacher_options)),
            "student": Variant("S", str(config), student, {"teacher": "teacher"}, own_steps=True),
            "grandchild": Variant("G", str(config), student, {"teacher": "student"}),
        }
        return {"solve": Experiment("solve", "Solving", "", variants, METRICS, steps=30, curve=("test/teacher_seed",))}

    monkeypatch.setattr(headline, "load_experiments", experiments)

    def run(*words: str):
        words = ("fake", "--runs-root", str(tmp_path / "runs"), "--results-root", str(tmp_path / "results"), *words)
        status = headline.main(words, TRAIN)
        path = tmp_path / "results" / "fake.json"
        calls = tmp_path / "runs" / "calls.txt"
        started = [line.split("/")[2] for line in calls.read_text().splitlines()] if calls.exists() else []
        return status, json.loads(path.read_text())["records"] if path.exists() else [], started

    run.teacher_options = teacher_options
    return run


def test_each_student_gets_the_finished_run_of_its_teacher_with_the_same_seed(bench):
    status, records, started = bench("--seeds", "2", "--jobs", "2")
    assert status == 0
    assert started == sorted(started, key=["teacher", "student", "grandchild"].index)
    assert len(started) == 6
    seeds = {(r["variant"], r["seed"]): r["value"] for r in records if r["metric"] == "test/teacher_seed"}
    assert seeds == {(variant, seed): seed for variant in ("student", "grandchild") for seed in (1, 2)}
    steps = {r["variant"]: r["steps"] for r in records}
    assert steps == {"teacher": 30, "student": 5, "grandchild": 30}  # 5 is the fake's own number


def test_a_variant_brings_those_that_it_builds_on_and_a_changed_teacher_makes_another_run(bench):
    assert bench("--seeds", "1", "--variants", "student")[2] == ["teacher", "student"]
    assert bench("--seeds", "1")[2] == ["teacher", "student", "grandchild"]
    bench.teacher_options["lr"] = 0.5
    assert bench("--seeds", "1")[2][3:] == ["teacher", "student", "grandchild"]


def test_students_of_a_failed_teacher_are_counted_as_failed(bench, capsys):
    bench.teacher_options["behaviour"] = "fail"
    status, records, started = bench("--seeds", "1")
    assert (status, records, started) == (1, [], ["teacher"])
    shown = capsys.readouterr()
    assert "[3/3] fake/solve/grandchild/seed_1 FAILED" in shown.out
    assert "not started: it needs fake/solve/teacher/seed_1, which is not finished" in shown.out
    assert "3 runs failed" in shown.err


def job(root: Path, **options) -> Job:
    return Job("e", "v", 1, "m/e/v", "none.yaml", {}, root, ("python", "train.py"), **options)


def test_the_name_depends_on_the_needed_run_and_not_on_its_place(tmp_path: Path):
    teachers = [job(tmp_path), job(tmp_path / "elsewhere")]
    names = {job(tmp_path, after={"teacher": teacher}).name for teacher in teachers}
    assert len(names) == 1
    assert job(tmp_path).name not in names
    student = job(tmp_path, after={"teacher": teachers[0]})
    with pytest.raises(ValueError, match=f"run {teachers[0].name} is not finished"):
        student.command_line()
    for attempt, status in enumerate(("finished", "interrupted")):
        (teachers[0].folder / str(attempt)).mkdir(parents=True)
        (teachers[0].folder / str(attempt) / "summary.json").write_text(json.dumps({"status": status}))
    words = student.command_line()
    assert words[words.index("--teacher") + 1] == str(tmp_path / teachers[0].name / "0")


def test_the_needed_variant_stands_earlier_and_is_not_tuned():
    first, second = Variant("A", "a.yaml"), Variant("B", "b.yaml", after={"teacher": "a"})
    with pytest.raises(ValueError, match="b runs after a, which must stand before it"):
        Experiment("e", "", "", {"b": second, "a": first}, METRICS, 1)
    with pytest.raises(ValueError, match="leave tuning out"):
        Experiment("e", "", "", {"a": first, "b": second}, METRICS, 1, tuning=Tuning({"lr": (1,)}, metric="val/loss"))
