"""A run that is killed and continued ends as the run that was never killed."""

import csv
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import launch

TOY = Path(__file__).parents[1] / "support" / "toy.yaml"
KILLS = [
    (1, "before_optimizer_step"),  # before the first checkpoint
    (5, "batch_start"),
    (7, "batch_end"),
    (8, "validation_end"),
    (8, "epoch_start"),
    (16, "batch_end"),
    (17, "before_optimizer_step"),
]


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
    """All but what differs by nature: paths, times, and the callback that kills."""
    callbacks = {k: v for k, v in checkpoint["callbacks"].items() if not k.startswith(("ModelCheckpoint", "Timer", "KillAt"))}
    best = next(v for k, v in checkpoint["callbacks"].items() if k.startswith("ModelCheckpoint"))
    scores = {key: best[key] for key in ("best_model_score", "current_score")}
    return {k: v for k, v in checkpoint.items() if k not in ("callbacks", "loops")} | {"callbacks": callbacks, "best": scores}


def killed_and_continued(tmp_path: Path, step: int, moment: str, ranks: int, *overrides: str) -> Path:
    kill = f'[{{"class_path": "toy.KillAt", "init_args": {{"step": {step}, "moment": "{moment}"}}}}]'
    command = ["--config", TOY, *overrides]
    killed = launch([*command, f"--trainer.callbacks={kill}"], tmp_path, ranks)
    assert -signal.SIGKILL in [p.status for p in killed], killed
    continued = launch([*command, "--resume", "--trainer.callbacks=null"], tmp_path, ranks)
    assert [p.status for p in continued] == [0] * ranks, continued
    return tmp_path / "runs" / "support" / "toy" / "0"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    folders = {}
    for ranks in (1, 2):
        cwd = tmp_path_factory.mktemp(f"ranks{ranks}")
        done = launch(["--config", TOY, f"--trainer.devices={ranks}"], cwd, ranks)
        assert [p.status for p in done] == [0] * ranks, done
        folders[ranks] = cwd / "runs" / "support" / "toy" / "0"
    return folders


@pytest.mark.parametrize(("step", "moment"), KILLS)
def test_one_process(undisturbed: dict[int, Path], tmp_path: Path, step: int, moment: str):
    folder = killed_and_continued(tmp_path, step, moment, 1)
    assert differences(relevant(state(folder)), relevant(state(undisturbed[1]))) == []
    assert metrics(folder) == metrics(undisturbed[1])


@pytest.mark.parametrize(("step", "moment"), [(7, "batch_end"), (8, "epoch_start"), (13, "before_optimizer_step")])
def test_two_ranks(undisturbed: dict[int, Path], tmp_path: Path, step: int, moment: str):
    folder = killed_and_continued(tmp_path, step, moment, 2, "--trainer.devices=2")
    assert differences(relevant(state(folder)), relevant(state(undisturbed[2]))) == []
    assert metrics(folder) == metrics(undisturbed[2])


def test_the_comparison_sees_a_difference(undisturbed: dict[int, Path]):
    checkpoint = relevant(state(undisturbed[1]))
    changed = {**checkpoint, "state_dict": {k: v + 1e-7 for k, v in checkpoint["state_dict"].items()}}
    assert differences(checkpoint, changed)
