"""Kill runs and continue them, and compare what they leave with a run that was never killed."""

import csv
import signal
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from processes import launch


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
    if isinstance(a, bytes) and isinstance(b, bytes) and a != b:
        return differences(simulation(a), simulation(b), where)
    equal = torch.equal(a, b) if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) else a == b
    return [] if equal else [where]


def simulation(data: bytes) -> dict[str, torch.Tensor]:
    """The numbers in a snapshot of MuJoCo, without its stop watches."""
    import mujoco

    loaded = mujoco.MjData.__new__(mujoco.MjData)
    loaded.__setstate__(zlib.decompress(data))
    arrays = {name: getattr(loaded, name) for name in dir(loaded) if not name.startswith("_")}
    return {name: torch.from_numpy(array.copy()) for name, array in arrays.items() if isinstance(array, np.ndarray)}


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


def shards(folder: Path) -> dict[str, Any]:
    """What each rank alone kept for the last checkpoint."""
    token = state(folder)["rank_shards"]
    files = sorted((folder / "checkpoints" / "shards" / token).iterdir()) if token else []
    return {file.name: torch.load(file, weights_only=True) for file in files}


def assert_same_run(one: Path, other: Path) -> None:
    assert differences(relevant(state(one)), relevant(state(other))) == []
    assert differences(shards(one), shards(other)) == []
    assert metrics(one) == metrics(other)
