"""Observations brought to mean 0 and variance 1 by what all processes have seen."""

from collections.abc import Sequence
from typing import Any

import torch.distributed as dist
from torch import Tensor

from datamodules.rl.normalisers import RunningMeanStd


class ObservationNormaliser:
    """Statistics that are the same on all ranks at every moment.

    What a rank sees is counted apart until :meth:`merge_ranks`, which takes the new part of every rank into the common statistics,
    in the order of ranks.

    Args:
        shape: shape of an observation.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        self.shared, self.unmerged = RunningMeanStd(shape), RunningMeanStd(shape)

    def observe(self, obs: Tensor) -> None:
        """Count observations of this rank, ``[n, *shape]``."""
        self.unmerged.update(obs)

    def merge_ranks(self) -> None:
        """Take in what every rank has seen since the last call; all ranks must call it."""
        parts: list[Any] = [self.unmerged.state_dict()]
        if dist.is_initialized():
            parts = [None] * dist.get_world_size()
            dist.all_gather_object(parts, self.unmerged.state_dict())
        for part in parts:
            seen = RunningMeanStd(self.shared.mean.shape)
            seen.load_state_dict(part)
            self.shared.merge(seen)
        self.unmerged = RunningMeanStd(self.shared.mean.shape)

    def __call__(self, obs: Tensor) -> Tensor:
        """Normalise observations ``[..., *shape]``; before the first merge they stay as they are."""
        return self.shared.normalise(obs)
