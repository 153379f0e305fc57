"""Loaders that count instead of reading: ticks of training, and numbers of evaluation episodes."""

from collections.abc import Iterator

import torch
from torch import Tensor


class Ticks:
    """The ticks of one epoch. It has a length, so that nothing is fetched ahead, and begins again where a checkpoint was made.

    Args:
        length: ticks of an epoch.
    """

    def __init__(self, length: int) -> None:
        self.length = length
        self._first = self._handed_out = 0

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        first, self._first = self._first, 0
        for tick in range(first, self.length):
            self._handed_out = tick + 1
            yield tick

    def state_dict(self) -> dict[str, int]:
        """Return the number of ticks handed out in this epoch."""
        return {"tick": self._handed_out}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Begin there; a finished epoch begins anew."""
        self._first = state["tick"] % self.length


class Episodes:
    """The numbers of this rank's evaluation episodes, in one batch.

    Args:
        first: number of the first episode of all ranks.
        count: number of episodes of all ranks.
        rank: number of this process.
        world_size: number of processes.

    Raises:
        ValueError: if there are fewer episodes than processes.
    """

    def __init__(self, first: int, count: int, rank: int = 0, world_size: int = 1) -> None:
        if count < world_size:
            raise ValueError(f"{count} evaluation episodes cannot be shared by {world_size} processes: use at least one each")
        self.numbers = torch.arange(first + rank, first + count, world_size)

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[Tensor]:
        yield self.numbers
