import sys
import time
from pathlib import Path

from benchmarks.jobs import Job
from benchmarks.pool import LocalExecutor, Progress, duration

SLEEP = "import sys, time; time.sleep(60 if 'slow' in sys.argv else 0)"


def job(folder: Path, kind: str) -> Job:
    return Job("e", kind, 1, f"m/e/{kind}", "none.yaml", {"kind": kind}, folder, (sys.executable, "-c", SLEEP))


def test_leaving_early_ends_the_running_processes(tmp_path: Path):
    begin = time.monotonic()
    outcomes = LocalExecutor(2)([job(tmp_path, "slow"), job(tmp_path, "fast")])
    first = next(outcomes)
    assert first.job.variant == "fast"
    assert "without a summary" in first.failure
    outcomes.close()
    assert time.monotonic() - begin < 30


def test_names_of_runs_belong_to_their_arguments(tmp_path: Path):
    assert job(tmp_path, "slow").name == job(tmp_path / "elsewhere", "slow").name
    assert job(tmp_path, "slow").name.startswith("m/e/slow-")
    longer = Job("e", "slow", 1, "m/e/slow", "none.yaml", {"kind": "slow", "horizons": (1, 2)}, tmp_path, ("python", "train.py"))
    assert longer.name != job(tmp_path, "slow").name
    assert longer.arguments == ("--config", "none.yaml", "--kind", "slow", "--horizons", "[1, 2]")


def test_remaining_time_counts_rounds(tmp_path: Path):
    progress = Progress(total=5, workers=2)
    outcome = LocalExecutor(1)([job(tmp_path, "fast")])
    ended = next(outcome)
    # one run of s seconds done, four left two at a time: two rounds
    line = progress.line(type(ended)(ended.job, 300.0))
    assert line == "[1/5] m/e/fast finished in 5 min, about 10 min left"
    assert [duration(seconds) for seconds in (1.2, 119.0, 180.0, 9000.0)] == ["1 s", "119 s", "3 min", "2.5 h"]
