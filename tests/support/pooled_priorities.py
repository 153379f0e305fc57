"""Pooled experience for agents that give priorities, which here change nothing."""

from typing import Any

import torch
from torch import Tensor
from toy_experience import PooledReplay


class PooledPriorities(PooledReplay):
    """Every rank takes its part of draws from a table that all ranks share, whatever the priorities."""

    def __init__(self, env: str, prioritised: bool = True, **options: Any) -> None:
        super().__init__(env, prioritised=prioritised, **options)

    def sample(self, batch_size: int, device: torch.device) -> dict[str, Tensor]:
        return super().sample(batch_size, device) | {"index": torch.arange(batch_size)}

    def update_priorities(self, index: Tensor, priority: Tensor) -> None:
        assert index.shape == priority.shape

    def reset_max_priority(self) -> None: ...
