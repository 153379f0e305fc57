"""The commands that pages print are found, and a wrong or unknown one is a failure."""

import re
from pathlib import Path

import check_commands
import pytest
from check_commands import NOT_RUN, PROGRAMS, AbsentData, Checker, Failure, Finished
from printed_commands import Printed, printed

PAGE = """\
Take `python train.py --list`, the option `--resume.every_n_steps 9`, but not `python` or `x = "python train.py"`.

    pip install -e '.[dev]' && pytest            # two commands
    torchrun --nproc-per-node=2 train.py \\
        --config a.yaml     # one command on two lines

1. A list

   - `pytest -x`
     goes on, no block.

```python
import torch  # not `python train.py`
```

    #!/bin/bash
    #SBATCH --nodes=2

    srun python train.py --config b.yaml

Settings:

    data:
      class_path: datamodules.MazeDataModule

A picture:

    train.py   a tree

```bibtex
@book{b}
```
"""


def write(folder: Path, text: str) -> Path:
    page = folder / "page.md"
    page.write_text(text)
    return page


def found(folder: Path, text: str) -> list[Printed]:
    return list(printed(write(folder, text), [*PROGRAMS, *NOT_RUN]))


def test_everything_that_a_page_prints_is_found_in_order(tmp_path: Path):
    assert [(thing.kind, thing.text.splitlines()[0], thing.line) for thing in found(tmp_path, PAGE)] == [
        ("command", "python train.py --list", 1),
        ("option", "--resume.every_n_steps 9", 1),
        ("command", "pip install -e '.[dev]'", 3),
        ("command", "pytest", 3),
        ("command", "torchrun --nproc-per-node=2 train.py --config a.yaml", 5),
        ("command", "pytest -x", 9),
        ("python", "import torch  # not `python train.py`", 13),
        ("script", "#!/bin/bash", 16),
        ("command", "srun python train.py --config b.yaml", 19),
        ("settings", "data:", 23),
        ("text", "train.py   a tree", 28),
    ]


def test_the_pages_print_what_a_newcomer_types_first():
    (readme, *_) = check_commands.pages()
    commands = [thing.words for thing in printed(readme, list(PROGRAMS)) if thing.kind == "command"]
    assert ["python", "train.py", "--config", "configs/sheaf_admm/sudoku.yaml"] in commands
    assert sum(words[:2] == ["python", "train.py"] for words in commands) >= 6


GOOD = {
    "    python train.py --config configs/sheaf_admm/maze.yaml": "run by tests/test_configs.py",
    "    pip install -e '.[dev,rl]'": "its extras exist; CI installs the package",
    "    pip install -c constraints.txt -e .": "its extras exist; CI installs the package",
    "```python\nx = 1\n```": "compiled",
    "    #!/bin/bash\n    # nothing": "syntax",
}
BAD = {
    "    python train.py --config configs/sheaf_admm/mazes.yaml": "there is no file configs/sheaf_admm/mazes.yaml",
    "    python train.py --config configs/overlays/gpu.yaml": "gpu.yaml is no experiment",
    "    python train.py tset --config configs/sheaf_admm/maze.yaml": "'tset' is no subcommand",
    "    python -m benchmarks.nothing": "no check knows this kind of command: 'python -m benchmarks.nothing'",
    "    python nothing.py": "no check knows this kind of command: 'python nothing.py'",
    "    srun hostname": "no check knows this kind of command: 'srun hostname'",
    "    docker run leyden": "neither a known command nor Python nor settings: 'docker run leyden'",
    "    pip install 'leyden[devel]'": "nothing called devel",
    "    bash configs/sweeps/nothing.sh": "there is no script configs/sweeps/nothing.sh",
    "```python\nx = = 1\n```": "invalid syntax",
    "    #!/bin/bash\n    if true": "syntax error",
}


@pytest.fixture
def checker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checker:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    (tmp_path / "house").mkdir()
    return Checker(tmp_path / "house")


@pytest.mark.parametrize("text", GOOD)
def test_what_is_right_passes(tmp_path: Path, checker: Checker, text: str):
    (thing,) = found(tmp_path, text)
    assert checker.check(thing) == GOOD[text]


@pytest.mark.parametrize("text", BAD)
def test_what_is_wrong_fails(tmp_path: Path, checker: Checker, text: str):
    thing = found(tmp_path, text)[0]
    with pytest.raises(Failure, match=re.escape(BAD[text])):
        checker.check(thing)


def test_a_failure_is_named_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    good, bad = "    pip install -e .\n\n", "Try it:\n\n    docker run leyden\n"
    assert check_commands.main([write(tmp_path, good)]) == 0
    assert check_commands.main([write(tmp_path, good + bad)]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("error: page.md:5: neither a known command")


def test_the_first_trial_of_a_sweep_takes_the_least_values():
    words = check_commands._first_trial(check_commands.PROJECT / "configs/sweeps/sheaf_admm_sudoku.yaml")
    assert words[:3] == ["fit", "--config", "configs/sheaf_admm/sudoku.yaml"]
    assert "--model.init_args.lr=0.0005" in words
    assert "--seed_everything=42" in words


def test_a_command_without_its_data_is_told_from_a_wrong_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    checker = Checker(tmp_path)
    for words, kind in (("a.npz is in none of /x: get it, or set LEYDEN_DATA to one", AbsentData), ("no such key", Failure)):
        monkeypatch.setattr(check_commands, "launch", lambda *_, **__: [Finished(2, f"error: {words}")])  # noqa: B023
        with pytest.raises(Failure) as caught:
            checker._launch(["--config", "a.yaml"])
        assert caught.type is kind
