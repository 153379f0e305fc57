"""A run that is killed and continued ends as the run that was never killed."""

import csv
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import launch
from short_runs import SHORT_RUNS, TOY

from callbacks import ExactResume

WITHIN_EPOCHS = ["--trainer.check_val_every_n_epoch=null", "--trainer.val_check_interval=5"]
CASES: dict[str, tuple[list[object], list[str]]] = {
    "checkpoints anywhere": (
        ["--resume.every_n_steps=3"],
        [
            "1 before_optimizer_step",  # before the first checkpoint
            *("5 batch_start", "7 batch_end", "8 validation_end", "8 epoch_start", "16 batch_end", "17 before_optimizer_step"),
        ],
    ),
    "checkpoints at epoch starts": (["--resume.every_n_steps=8"], ["8 batch_start", "12 batch_end", "23 before_optimizer_step"]),
    "validation every other epoch": (
        ["--resume.every_n_steps=8", "--trainer.check_val_every_n_epoch=2"],
        ["10 batch_end", "16 validation_end"],
    ),
    "validation within epochs": (
        ["--resume.every_n_steps=4", "--trainer.max_epochs=-1", "--trainer.max_steps=22", *WITHIN_EPOCHS],
        ["9 batch_end", "10 validation_end", "13 before_optimizer_step", "20 validation_end"],
    ),
    "epochs of one batch": (
        ["--data.init_args.size=8", "--trainer.max_epochs=12", "--trainer.check_val_every_n_epoch=5"],
        ["5 validation_end", "8 batch_end"],
    ),
    "workers": (["--data.init_args.num_workers=2"], ["7 batch_end"]),
}


def state(folder: Path) -> dict[str, Any]:
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)


def metrics(folder: Path) -> dict[tuple[str, str], str]:
    with (folder / "metrics.csv").open() as file:
        return {(row["step"], key): value for row in csv.DictReader(file) for key, value in row.items() if value}


def differences(a: Any, b: Any, where: str = "") -> list[str]:
    if isinstance(a, dict) and isinstance(b, dict):
        return [w for key in a.keys() | b.keys() for w in differences(a.get(key), b.get(key), f"{where}/{key}")]
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b):
        return [w for i, (x, y) in enumerate(zip(a, b, strict=True)) for w in differences(x, y, f"{where}/{i}")]
    equal = torch.equal(a, b) if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) else a == b
    return [] if equal else [where]


def relevant(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """All but what differs by nature: paths and times."""
    callbacks = {k: v for k, v in checkpoint["callbacks"].items() if not k.startswith(("ModelCheckpoint", "Timer"))}
    best = next(v for k, v in checkpoint["callbacks"].items() if k.startswith("ModelCheckpoint"))
    scores = {"best_model_score": best["best_model_score"]}
    return {k: v for k, v in checkpoint.items() if k not in ("callbacks", "loops")} | {"callbacks": callbacks, "best": scores}


def folder_of(cwd: Path) -> Path:
    return cwd / "runs" / "resume" / "run" / "0"


def command(words: list[object], ranks: int) -> list[object]:
    kill = '--trainer.callbacks+={"class_path": "toy.KillAt"}'
    return [*words, kill, f"--trainer.devices={ranks}", "--trainer.accelerator=cpu", "--run.name=resume/run"]


def undisturbed(cwd: Path, words: list[object], ranks: int) -> Path:
    done = launch(command(words, ranks), cwd, ranks)
    assert [p.status for p in done] == [0] * ranks, done
    return folder_of(cwd)


def killed_and_continued(cwd: Path, words: list[object], ranks: int, *kills: str) -> Path:
    resume = [*words[:2], "--run.name=resume/run", "--resume"]
    for kill, started in zip(kills, [command(words, ranks), *[resume] * len(kills)], strict=False):
        killed = launch(started, cwd, ranks, env={"KILL_AT": kill})
        assert -signal.SIGKILL in [p.status for p in killed], killed
    continued = launch(resume, cwd, ranks)
    assert [p.status for p in continued] == [0] * ranks, continued
    return folder_of(cwd)


def assert_same_run(one: Path, other: Path) -> None:
    assert differences(relevant(state(one)), relevant(state(other))) == []
    assert metrics(one) == metrics(other)


@pytest.mark.parametrize("case", CASES)
def test_one_process(tmp_path: Path, case: str):
    overrides, kills = CASES[case]
    words = [*TOY, *overrides]
    reference = undisturbed(tmp_path, words, 1)
    for kill in kills:
        (tmp_path / kill).mkdir()
        assert_same_run(killed_and_continued(tmp_path / kill, words, 1, kill), reference)


def test_only_its_own_checkpoints_claim_an_epoch_start(tmp_path: Path):
    folder = undisturbed(tmp_path, [*TOY, "--resume.every_n_steps=8"], 1)
    best = next((folder / "checkpoints").glob("best*.ckpt"))
    assert torch.load(best, weights_only=True)["callbacks"]["ExactResume"] == {"logged_steps": 16, "at_epoch_start": False}


def test_two_ranks(tmp_path: Path):
    reference = undisturbed(tmp_path, TOY, 2)
    for kill in ("7 batch_end", "8 epoch_start", "13 before_optimizer_step"):
        (tmp_path / kill).mkdir()
        assert_same_run(killed_and_continued(tmp_path / kill, TOY, 2, kill), reference)


def test_another_number_of_ranks_is_said(tmp_path: Path):
    launch(command(TOY, 2), tmp_path, 2, env={"KILL_AT": "13 batch_start"})
    (alone,) = launch([*TOY, "--run.name=resume/run", "--resume", "--trainer.devices=1"], tmp_path)
    assert alone.status == 0, alone
    assert "saved by 2 processes and goes on with 1" in alone.output


def test_killed_twice(tmp_path: Path):
    reference = undisturbed(tmp_path, TOY, 1)
    cwd = tmp_path / "twice"
    cwd.mkdir()
    killed_and_continued(cwd, TOY, 1, "5 batch_start", "11 batch_end")
    assert_same_run(folder_of(cwd), reference)


@pytest.mark.parametrize("method", [method for method in SHORT_RUNS if method != "toy"])
def test_every_method(tmp_path: Path, method: str):
    reference = undisturbed(tmp_path, SHORT_RUNS[method], 1)
    for kill in ("5 batch_end", "6 validation_end"):
        (tmp_path / kill).mkdir()
        assert_same_run(killed_and_continued(tmp_path / kill, SHORT_RUNS[method], 1, kill), reference)


def test_the_comparison_sees_a_difference(tmp_path: Path):
    checkpoint = relevant(state(undisturbed(tmp_path, TOY, 1)))
    changed = {**checkpoint, "state_dict": {k: v + 1e-7 for k, v in checkpoint["state_dict"].items()}}
    assert differences(checkpoint, changed)


def test_impossible_interval():
    with pytest.raises(ValueError, match="every_n_steps >= 1"):
        ExactResume(every_n_steps=0)
