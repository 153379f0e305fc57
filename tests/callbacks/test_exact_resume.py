"""A run that is killed and continued ends as the run that was never killed."""

from pathlib import Path

import pytest
import torch
from lightning import Trainer
from processes import launch
from resumption import assert_same_run, command, differences, folder_of, killed_and_continued, relevant, state, undisturbed
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


def test_a_checkpoint_is_overdue_after_some_minutes(monkeypatch: pytest.MonkeyPatch):
    trainer, resume = Trainer(logger=False, accelerator="cpu", devices=1), ExactResume(every_minutes=2.0)
    resume._saved_at_time = 1_000.0
    overdue = []
    for now in (1_000.0, 1_119.0, 1_121.0):
        monkeypatch.setattr("callbacks.exact_resume.time.monotonic", lambda now=now: now)
        overdue.append(resume._asked(trainer)[1])
    assert overdue == [False, False, True]
    assert ExactResume()._asked(trainer) == (0, False)


def test_time_alone_makes_checkpoints(tmp_path: Path):
    words = [*TOY, "--resume.every_n_steps=1000", "--resume.every_minutes=1e-9"]
    reference = undisturbed(tmp_path, words, 1)
    (tmp_path / "killed").mkdir()
    assert_same_run(killed_and_continued(tmp_path / "killed", words, 1, "13 before_optimizer_step"), reference)
    (tmp_path / "ranks").mkdir()
    launch(command(words, 2), tmp_path / "ranks", 2, env={"KILL_AT": "13 before_optimizer_step"})
    kept = state(folder_of(tmp_path / "ranks"))["global_step"]
    assert kept == 9, "two ranks agree every tenth time they ask, which they did at nine steps and at the start of an epoch"


@pytest.mark.parametrize("numbers", [{"every_n_steps": 0}, {"every_minutes": 0.0}])
def test_impossible_interval(numbers: dict[str, float]):
    with pytest.raises(ValueError, match="ExactResume needs positive numbers, got every_n_steps="):
        ExactResume(**numbers)
