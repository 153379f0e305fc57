"""``python -m launcher.new_method`` writes the method of docs/add_a_method.md under another name, and it trains."""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from launcher import new_method
from launcher.errors import UserError

PROJECT = Path(__file__).parents[1]
PAGE = "docs/add_a_method.md"
ROOMS = ("launcher", "callbacks", "datamodules", "lightning_modules", "configs")


def contents(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A checkout that holds no more than the page and what a new method is entered in."""
    for name in (PAGE, *new_method.TABLES):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT / name, tmp_path / name)
    return tmp_path


def test_a_new_method_trains_and_passes_its_tests(house: Path):
    shutil.copy(PROJECT / "train.py", house)
    for room in ROOMS:
        shutil.copytree(PROJECT / room, house / room, dirs_exist_ok=True)
    begun = subprocess.run(
        [sys.executable, "-m", "launcher.new_method", "two_words"], cwd=house, capture_output=True, text=True, check=True
    )
    test = "tests/lightning_modules/two_words/test_two_words.py"
    assert test in begun.stdout.splitlines()
    command = re.search(r"python train\.py (--config \S+)", begun.stdout)
    assert command
    code = "import sys, pytest; from launcher.main import main; sys.exit(pytest.main(sys.argv[1:4]) or main(sys.argv[4:]))"
    words = [test, "--import-mode=importlib", "--override-ini=addopts=", *command[1].split()]
    here = os.environ | {"PYTHONPATH": str(house)}
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=house, env=here, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    summary = json.loads((house / "runs/two_words/plane/0/summary.json").read_text())
    assert summary["metrics"]["test/error"] < 0.01


def test_it_is_entered_wherever_methods_are(house: Path):
    written = new_method.new_method("two_words", project=house)
    assert all((house / path).is_file() for path in written)
    contracts = {
        one["name"]: one for one in tomllib.loads((house / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    }
    methods = contracts["No method imports another method"]["modules"]
    assert "lightning_modules.two_words" in methods
    assert methods == sorted(methods)
    assert contracts["Shared rooms import no method"]["forbidden_modules"] == methods
    assert "lightning_modules.two_words.two_words" in contracts["The mathematics imports no Lightning"]["source_modules"]
    short_run = runpy.run_path(str(house / "tests/support/short_runs.py"))["SHORT_RUNS"]["two_words"]
    assert short_run[1] == house / "configs/two_words/plane.yaml"
    assert short_run[1].is_file()
    ruff = Path(sys.executable).with_name("ruff")
    for check in (["check", "--isolated", "--select=E,F,I", "--line-length=132"], ["format", "--check", "--line-length=132"]):
        files = [house / path for path in written if path.suffix == ".py"]
        done = subprocess.run([ruff, *check, *files], cwd=house, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_under_its_own_name_the_files_are_those_of_the_page(house: Path):
    new_method.new_method("ridge", project=house)
    page = (PROJECT / PAGE).read_text()
    blocks = re.findall(r"```(?:python|yaml|markdown)\n(?:# |<!-- )(\S+).*\n([\s\S]*?)```", page)
    assert len(blocks) == page.count("```") / 2 == 6
    for path, text in blocks:
        assert (house / path).read_text() == text


def test_data_that_are_there_are_taken(house: Path):
    new_method.new_method("two_words", "datamodules.SudokuDataModule", house)
    assert "datamodules.SudokuDataModule" in (house / "configs/two_words/plane.yaml").read_text()
    assert not list((house / "datamodules").glob("*points*"))
    assert (house / "datamodules/__init__.py").read_text() == (PROJECT / "datamodules/__init__.py").read_text()


@pytest.mark.parametrize(
    ("name", "data", "complaint"),
    [
        ("Ridge", None, "no name for a method"),
        ("a__b", None, "no name for a method"),
        ("lambda", None, "no name for a method"),
        ("x" * 25, None, "no name for a method"),
        ("there", None, "lightning_modules/there exists: choose another name"),
        ("room", None, "lightning_modules/room.py exists: choose another name"),
        ("g", "datamodules.Sudoku", "no datamodules.Sudoku: --data takes"),
    ],
)
def test_a_bad_name_changes_nothing(house: Path, name: str, data: str | None, complaint: str):
    (house / "lightning_modules/there").mkdir()
    (house / "lightning_modules/room.py").touch()
    before = contents(house)
    with pytest.raises(UserError, match=complaint):
        new_method.new_method(name, data, house)
    assert contents(house) == before


def test_a_class_of_the_same_name_is_refused(house: Path):
    table = house / "lightning_modules/__init__.py"
    table.write_text(table.read_text().replace('"rl.sac_module"', '"other.module": ["TwoWordsModule"],\n        "rl.sac_module"'))
    before = contents(house)
    with pytest.raises(UserError, match="has a TwoWordsModule: choose another name"):
        new_method.new_method("two_words", project=house)
    assert contents(house) == before


@pytest.mark.parametrize("fits", [0, 4, 10])
def test_a_disk_that_is_full_leaves_nothing_behind(house: Path, monkeypatch: pytest.MonkeyPatch, fits: int):
    before, folders = contents(house), {path for path in house.rglob("*") if path.is_dir()}
    written: list[Path] = []
    write = Path.write_text

    def write_text(path: Path, text: str) -> int:
        written.append(path)
        if len(written) == fits + 1:
            write(path, text[: len(text) // 2])
            raise OSError("no space left on device")
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", write_text)
    with pytest.raises(OSError, match="no space"):
        new_method.new_method("two_words", project=house)
    assert contents(house) == before
    assert {path for path in house.rglob("*") if path.is_dir()} == folders


def test_a_checkout_without_its_tables_is_told(house: Path):
    (house / "pyproject.toml").write_text("[project]\n")
    with pytest.raises(UserError, match="pyproject.toml has no list after No method imports another method"):
        new_method.new_method("two_words", project=house)
    (house / PAGE).unlink()
    with pytest.raises(UserError, match="a method is begun in a checkout"):
        new_method.new_method("two_words", project=house)
