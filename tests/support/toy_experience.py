"""Experience that is the same whether one process draws whole batches or several draw their parts."""

from typing import Any

import pytest
import torch
from lightning import Callback
from torch import Tensor

from datamodules.rl.datamodule import RLDataModule


class PooledReplay(RLDataModule):
    """Acts in its own environments, but draws from a table that all ranks share: of every draw each rank takes its part."""

    def setup(self, stage: str) -> None:
        super().setup(stage)
        if stage == "fit":
            g = torch.Generator().manual_seed(0)
            size = 200
            obs, next_obs = torch.randn(2, size, self.obs_dim, generator=g)
            self.table = {
                "obs": obs,
                "next_obs": next_obs,
                "action": torch.rand(size, self.action_dim, generator=g) * 2 - 1,
                "reward": torch.randn(size, generator=g),
                "terminated": torch.rand(size, generator=g) < 0.2,
            }
            self.draws = torch.Generator().manual_seed(1)

    def sample(self, batch_size: int, device: torch.device) -> dict[str, Tensor]:
        world, rank = self.trainer.world_size, self.trainer.global_rank
        index = torch.randint(200, (batch_size * world,), generator=self.draws)[rank::world]
        return {name: value[index] for name, value in self.table.items()}

    def observations(self, count: int, device: torch.device) -> Tensor:
        return self.table["obs"][:count]


class NoiseFromMeans(Callback):
    """Let the noise of an action depend on its mean alone, so that a transition gets the same in every batch and on every rank.

    A mixture draws its heaviest component.
    """

    def __init__(self) -> None:
        self.patch = pytest.MonkeyPatch()

    def on_train_start(self, *_: Any) -> None:
        self.patch.setattr("torch.randn_like", noise_of)
        self.patch.setattr("lightning_modules.protosac.policies._noise_like", lambda mean, generator: noise_of(mean))
        self.patch.setattr("torch.multinomial", lambda weights, *_, **__: weights.argmax(dim=-1, keepdim=True))

    def on_train_end(self, *_: Any) -> None:
        self.patch.undo()


def noise_of(mean: Tensor) -> Tensor:
    return 2 * (3 * mean.detach() + 1).sin()
