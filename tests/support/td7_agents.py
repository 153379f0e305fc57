"""TD7 without a trainer, on a replay of random transitions."""

from typing import Any

import torch
from torch import Tensor

from datamodules.rl.replay import ReplayBuffer
from lightning_modules.r2r2.td7_module import TD7Module

OBS, ACTION, BATCH, LATENT, HIDDEN = 3, 2, 32, 8, 16


class Experience:
    """A filled replay that draws by priority, and a list of the priorities that it was given."""

    learning_starts = 0

    def __init__(self, size: int = 100) -> None:
        g = torch.Generator().manual_seed(0)
        self.replay = ReplayBuffer(size, [OBS], ACTION, prioritised=True, seed=1)
        obs, next_obs = torch.randn(2, size, OBS, generator=g)
        self.replay.add(
            {
                "obs": obs,
                "next_obs": next_obs,
                "action": torch.rand(size, ACTION, generator=g) * 2 - 1,
                "reward": 3 * torch.randn(size, generator=g),
                "terminated": torch.rand(size, generator=g) < 0.3,
                "truncated": torch.zeros(size, dtype=torch.bool),
            }
        )
        self.priorities: list[Tensor] = []
        self.env_steps = size
        self.ended: list[tuple[float, int]] = []

    def sample(self, batch_size: int = BATCH) -> dict[str, Tensor]:
        return self.replay.sample(batch_size)

    def update_priorities(self, index: Tensor, priority: Tensor) -> None:
        self.priorities.append(priority)
        self.replay.update_priorities(index, priority)

    def reset_max_priority(self) -> None:
        self.replay.reset_max_priority()

    def ended_episodes(self) -> list[tuple[float, int]]:
        return self.ended


class AloneTD7(TD7Module):
    """Updates without a trainer around it."""

    experience: Any = None

    def __init__(self, seed: int = 0, **options: Any) -> None:
        torch.manual_seed(seed)
        sizes = {"obs_dim": OBS, "action_dim": ACTION, "latent_dim": LATENT, "hidden": HIDDEN, "batch_size": BATCH}
        super().__init__(**{**sizes, **options})
        self.experience = Experience()
        self.own_optimizers = self.configure_optimizers()

    def optimizers(self, *_: Any) -> Any:
        return self.own_optimizers

    def manual_backward(self, loss: Tensor, *_: Any, **__: Any) -> None:
        loss.backward()

    def learn(self, updates: int) -> None:
        for _ in range(updates):
            torch.manual_seed(self.updates)
            self.logs = self.update(self.experience.sample())
            self.updates += 1
