import os
from functools import partial
from pathlib import Path

import pytest

from benchmarks.calculating import calculate
from benchmarks.experiments import Calculation

REPETITIONS = [("a", 1), ("b", 1), ("a", 2)]


def squared(calls: Path, variant: str, seed: int) -> dict[str, float]:
    (calls / f"{variant}{seed}_{os.getpid()}").touch()
    return {"square": float(seed**2), "threads": float(os.environ.get("OMP_NUM_THREADS", 0))}


def failing_at_b(calls: Path, variant: str, seed: int) -> dict[str, float]:
    if variant == "b":
        raise ArithmeticError("b has no square")
    return squared(calls, variant, seed)


def calculation(compute: object, calls: Path, resumable: bool = True) -> Calculation:
    calls.mkdir(exist_ok=True)
    return Calculation("squares", "", "", {"a": "A", "b": "B"}, (), partial(compute, calls), resumable=resumable)  # type: ignore[arg-type]


def test_an_interrupted_one_goes_on(tmp_path: Path):
    calls, kept = tmp_path / "calls", tmp_path / "kept"
    with pytest.raises(ArithmeticError):
        calculate(calculation(failing_at_b, calls), REPETITIONS, kept, say=str)
    assert len(list(calls.iterdir())) == 1
    found = calculate(calculation(squared, calls), REPETITIONS, kept, say=str)
    assert [(*repetition, values["square"]) for repetition, values in found.items()] == [
        ("a", 1, 1.0),
        ("b", 1, 1.0),
        ("a", 2, 4.0),
    ]
    assert len(list(calls.iterdir())) == 3, "a repetition was computed twice"


def test_others_are_computed_anew(tmp_path: Path):
    for _ in range(2):
        calculate(calculation(squared, tmp_path / "calls", resumable=False), REPETITIONS[:1], tmp_path / "kept", say=str)
    assert not (tmp_path / "kept").exists()


def test_side_by_side_on_a_core_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    lines: list[str] = []
    found = calculate(calculation(squared, tmp_path / "calls"), REPETITIONS, tmp_path / "kept", jobs=2, say=lines.append)
    assert list(found) == REPETITIONS
    assert [values["square"] for values in found.values()] == [1.0, 1.0, 4.0]
    assert {values["threads"] for values in found.values()} == {1.0}
    assert str(os.getpid()) not in {file.name.split("_")[1] for file in (tmp_path / "calls").iterdir()}
    assert os.environ["OMP_NUM_THREADS"] == "3"
    assert lines[-1].startswith("[3/3]")
