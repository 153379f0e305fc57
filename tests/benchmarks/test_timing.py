from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import speed, speed_cases
from benchmarks.speed_results import SpeedResults, SpeedRow
from benchmarks.timing import PairedTimes, measure


def test_ratio_is_the_median_of_the_pairs():
    # ratios 1/2, 3/1, 4/4: median 1, whereas the ratio of medians is 3/2
    assert PairedTimes([1.0, 3.0, 4.0], [2.0, 1.0, 4.0]).ratio == 1.0


class Clock:
    """A clock that only the timed functions move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr("benchmarks.timing.time.perf_counter", lambda: self.now)

    def takes(self, seconds: float, calls: list[float]) -> Callable[[], None]:
        def work() -> None:
            self.now += seconds
            calls.append(seconds)

        return work


def test_sides_take_turns_and_a_slower_side_is_seen(monkeypatch: pytest.MonkeyPatch):
    clock, calls = Clock(monkeypatch), []
    times = measure(clock.takes(4.0, calls), clock.takes(2.0, calls), pairs=5, least_seconds=0.0, warm_up=1)
    assert calls[-10:] == [4.0, 2.0] * 5
    assert times == PairedTimes([4.0] * 5, [2.0] * 5)
    assert times.ratio == 2.0


def test_short_functions_are_repeated_within_a_measurement(monkeypatch: pytest.MonkeyPatch):
    clock, calls = Clock(monkeypatch), []
    times = measure(clock.takes(0.001, calls), clock.takes(1.0, calls), pairs=1, least_seconds=0.1, warm_up=0)
    assert calls[-101:] == [0.001] * 100 + [1.0]
    assert times.ours == pytest.approx([0.001])


def test_no_pairs_are_refused():
    with pytest.raises(ValueError, match="pairs=0"):
        measure(lambda: None, lambda: None, pairs=0)


def row(method: str, case: str, ratio: float) -> SpeedRow:
    return SpeedRow(method, case, ratio, 1.0, "peer", "1.0", ratio, 5)


def test_new_rows_replace_the_same_cases_only(tmp_path: Path):
    source = {"command": "c", "git": "abc", "versions": {"torch": "2"}, "machine": "m"}
    results = SpeedResults([row("sheaf_admm", "a", 1.0), row("sheaf_admm", "b", 2.0), row("launcher", "a", 3.0)])
    results.replace("sheaf_admm", [row("sheaf_admm", "a", 0.5)], source)
    assert results.rows == [row("launcher", "a", 3.0), row("sheaf_admm", "b", 2.0), row("sheaf_admm", "a", 0.5)]
    results.save(tmp_path)
    assert SpeedResults.load(tmp_path / "speed.json") == results
    assert "| sheaf_admm | a | peer 1.0 | 500 ms | 1 s | 0.500 | 5 |" in (tmp_path / "speed.md").read_text()


def test_command_writes_the_chosen_cases(tmp_path: Path, monkeypatch):
    case = speed.Case("quick", "peer", "1.0", lambda pairs: PairedTimes([1.0] * pairs, [2.0] * pairs))
    other = speed.Case("other", "peer", "1.0", lambda pairs: pytest.fail("not chosen"))
    module = type(speed_cases)("benchmarks.speed_cases.fake")
    module.CASES = (case, other)
    monkeypatch.setattr(speed, "speed_names", lambda: ["fake"])
    monkeypatch.setitem(__import__("sys").modules, "benchmarks.speed_cases.fake", module)
    assert speed.main(["fake", "--only", "quick", "--pairs", "3", "--results-root", str(tmp_path)]) == 0
    (found,) = SpeedResults.load(tmp_path / "speed.json").rows
    assert (found.case, found.ratio, found.n) == ("quick", 0.5, 3)
    with pytest.raises(SystemExit):
        speed.main(["fake", "--only", "nothing", "--results-root", str(tmp_path)])


def test_a_case_without_its_program_or_package_is_left_out(tmp_path: Path, monkeypatch, capsys):
    def case(name: str, **needs: str) -> speed.Case:
        return speed.Case(name, "peer", "", lambda pairs: PairedTimes([1.0], [1.0]), **needs)

    module = type(speed_cases)("benchmarks.speed_cases.fake")
    module.CASES = (
        case("a", needs="no-such-program"),
        case("b", needs_package="no-such-package"),
        case("c", needs_package="torch"),
    )
    monkeypatch.setattr(speed, "speed_names", lambda: ["fake"])
    monkeypatch.setitem(__import__("sys").modules, "benchmarks.speed_cases.fake", module)
    assert speed.main(["fake", "--results-root", str(tmp_path)]) == 0
    assert [row.case for row in SpeedResults.load(tmp_path / "speed.json").rows] == ["c"]
    shown = capsys.readouterr().out
    assert "a: left out, no-such-program is not installed" in shown
    assert "b: left out, no-such-package is not installed" in shown
