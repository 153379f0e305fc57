"""What each rank alone knows, in files beside a checkpoint: replays, environments, episodes under way."""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from lightning import Trainer


@runtime_checkable
class KeepsRankState(Protocol):
    """A data module with state that differs from rank to rank and is too large for the checkpoint that all share.

    The state consists of tensors, numbers, strings, bytes, and lists and dictionaries of them.
    """

    def rank_state_dict(self) -> dict[str, Any]: ...

    def load_rank_state_dict(self, state: dict[str, Any]) -> None: ...


class RankShards:
    """Files ``shards/<token>/rank<r>.pt`` in the folder of the checkpoints.

    They are written before the checkpoint that names their token, so that a checkpoint which exists has all of its shards; what a
    killed run wrote without finishing the checkpoint is written over or removed.

    Args:
        folder: the folder of the checkpoints.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "shards"

    def write(self, trainer: Trainer, token: str) -> str | None:
        """Write this rank's state; return the token if the data module has such a state, None if not."""
        datamodule = trainer.datamodule  # type: ignore[attr-defined]
        if not isinstance(datamodule, KeepsRankState):
            return None
        path = self._path(token, trainer.global_rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.part")
        with temporary.open("wb") as file:
            torch.save(datamodule.rank_state_dict(), file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        trainer.strategy.barrier("RankShards.write")
        return token

    def read(self, trainer: Trainer, token: str) -> None:
        """Hand this rank's state to the data module.

        Raises:
            FileNotFoundError: if the shards are not there.
            ValueError: if they were written by another number of ranks.
        """
        folder = self._path(token, 0).parent
        saved = len(list(folder.glob("rank*.pt")))
        if not saved:
            raise FileNotFoundError(f"{folder} is missing or empty: the checkpoint needs it, copy it along")
        if saved != trainer.world_size:
            raise ValueError(f"the run was saved by {saved} processes and goes on with {trainer.world_size}: use {saved}")
        state = torch.load(self._path(token, trainer.global_rank), weights_only=True)
        trainer.datamodule.load_rank_state_dict(state)  # type: ignore[attr-defined]

    def keep_only(self, tokens: Iterable[str | None]) -> None:
        """Remove the shards that no checkpoint names."""
        kept = set(tokens)
        for folder in self.folder.glob("*"):
            if folder.name not in kept:
                shutil.rmtree(folder)

    def _path(self, token: str, rank: int) -> Path:
        return self.folder / token / f"rank{rank}.pt"
