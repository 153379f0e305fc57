"""What all off-policy agents share on the common trainer: ticks of acting and updating, evaluation, counters."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol, cast

import torch
from lightning import LightningModule
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor

from lightning_modules.rl.episode_statistics import EpisodeStatistics
from lightning_modules.rl.ratio import Ratio

Act = Callable[[Tensor], Tensor]
Transitions = Mapping[str, Tensor]


class Outcomes(NamedTuple):
    """Returns and lengths of episodes, each ``[episodes]``."""

    returns: Tensor
    lengths: Tensor


class Experience(Protocol):
    """What an agent asks of its data: environments that it acts in, and a memory of what happened there.

    Attributes:
        env_steps: decisions taken so far, on all ranks together.
        total_env_steps: decisions of the whole run.
        learning_starts: decisions that are random.
        replay_capacity: transitions that a rank keeps.
        action_repeat: how often the environment applies an action.
    """

    env_steps: int
    total_env_steps: int
    learning_starts: int
    replay_capacity: int
    action_repeat: int

    def collect(self, act: Act) -> int:
        """Let the policy, or chance at the beginning, act for one tick; return for how many decisions updates are due."""

    def sample(self, batch_size: int, device: torch.device) -> Transitions:
        """Draw transitions: ``obs``, ``action``, ``reward``, ``next_obs``, ``terminated``."""

    def evaluate(self, act: Act, episodes: Tensor) -> Outcomes:
        """Play the evaluation episodes of these numbers."""

    def episode_returns(self) -> list[float]:
        """Returns of the training episodes that ended since the last call."""


class OffPolicyModule(LightningModule, ABC):
    """An agent that learns from a replay of its own experience.

    A training step is a *tick*: the environments move, then as many updates follow as ``utd`` demands. Everything is counted in
    ``env_steps`` (decisions on all ranks) and ``updates``, never in Lightning's ``global_step``, which counts optimiser steps. The
    metrics of a tick are logged at its ``env_steps``.

    Args:
        batch_size: transitions of an update, on each rank.
        utd: updates per decision of a rank; fractions add up.
        log_every_updates: updates between two entries in the loggers.
    """

    compiled: ClassVar[tuple[str, ...]]
    """Methods that make targets and objectives; what remains of an update is the work of optimisers."""

    def __init__(self, batch_size: int = 256, utd: float = 1.0, log_every_updates: int = 100) -> None:
        super().__init__()
        if batch_size < 1 or log_every_updates < 1:
            raise ValueError(f"batch_size={batch_size} and log_every_updates={log_every_updates} must be positive")
        self.automatic_optimization = False
        self.batch_size, self.log_every_updates = batch_size, log_every_updates
        self.ratio = Ratio(utd)
        self.updates = 0
        self.episode_statistics = EpisodeStatistics()

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile the methods in :attr:`compiled`."""
        for name in self.compiled:
            setattr(self, name, torch.compile(getattr(self, name), *args, **kwargs))

    @abstractmethod
    def explore(self, obs: Tensor) -> Tensor:
        """Return the actions of training for observations ``[n, obs]``, ``[n, m]`` in [-1, 1]."""

    @abstractmethod
    def exploit(self, obs: Tensor) -> Tensor:
        """Return the actions of evaluation, without randomness."""

    @abstractmethod
    def update(self, batch: Transitions) -> dict[str, Tensor]:
        """Make one update of all networks and return what to log."""

    @property
    def logger_step(self) -> int:
        """What loggers take as their x axis: decisions on all ranks."""
        return self.experience.env_steps

    @property
    def logger_steps(self) -> int:
        """Decisions of the whole run."""
        return self.experience.total_env_steps

    @property
    def experience(self) -> Experience:
        """The data module."""
        return cast(Experience, self.trainer.datamodule)  # type: ignore[attr-defined]

    def setup(self, stage: str) -> None:
        """Let DDP know that a backward pass reaches one network only.

        Raises:
            ValueError: if a batch is larger than what there is to draw it from.
        """
        strategy = self.trainer.strategy
        if isinstance(strategy, DDPStrategy):
            strategy._ddp_kwargs["find_unused_parameters"] = True
        for name in ("replay_capacity", "learning_starts") if stage == "fit" else ():
            if (number := getattr(self.experience, name)) < self.batch_size:
                raise ValueError(f"data.{name}={number} is less than model.batch_size={self.batch_size}: raise it")

    def training_step(self, batch: Any, batch_idx: int) -> None:
        logs: dict[str, Tensor] = {}
        due = self.updates_due(self.experience.collect(self.explore))
        for _ in range(due):
            logs = self.update(self.experience.sample(self.batch_size, self.device))
            self.updates += 1
        if due and self.updates // self.log_every_updates > (self.updates - due) // self.log_every_updates:
            self._log_tick(logs)

    def updates_due(self, decisions: int) -> int:
        """Return the updates that follow a tick with so many decisions to learn from."""
        return self.ratio(decisions)

    def validation_step(self, episodes: Tensor, batch_idx: int) -> None:
        self._play(episodes)

    def on_validation_epoch_end(self) -> None:
        self._log_episodes("val")
        where = {"step": float(self.logger_step), "env_steps": float(self.logger_step)}  # "step" is the x axis of the entry
        self.log_dict(where, batch_size=1, sync_dist=True)

    def test_step(self, episodes: Tensor, batch_idx: int) -> None:
        self._play(episodes)

    def on_test_epoch_end(self) -> None:
        self._log_episodes("test")

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["off_policy"] = {"updates": self.updates, "ratio": self.ratio.state_dict()}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.updates = checkpoint["off_policy"]["updates"]
        self.ratio.load_state_dict(checkpoint["off_policy"]["ratio"])

    def _log_tick(self, logs: Mapping[str, Tensor]) -> None:
        """Log losses and the returns of the training episodes that ended.

        The loggers are asked directly: ``self.log`` would repeat the last return where no episode ended, and cost more than a tick.
        """
        returns = self.experience.episode_returns()
        entries = {f"train/{name}": float(value) for name, value in logs.items()}
        if returns:
            entries["train/return"] = sum(returns) / len(returns)
            self.log("train/return", entries["train/return"], prog_bar=True, logger=False)
        drawn = self.updates * self.batch_size * self.trainer.world_size
        entries |= {
            "train/updates": float(self.updates),
            "train/replay_ratio": drawn / self.logger_step,
            "env_steps": float(self.logger_step),
            "frames": float(self.logger_step * self.experience.action_repeat),
        }
        for logger in self.loggers:
            logger.log_metrics(entries, step=self.logger_step)

    def _play(self, episodes: Tensor) -> None:
        self.episode_statistics.update(*self.experience.evaluate(self.exploit, episodes))

    def _log_episodes(self, stage: str) -> None:
        """Log the statistics of the episodes that all ranks have played."""
        found = self.episode_statistics.compute()
        self.episode_statistics.reset()
        self.log_dict({f"{stage}/{name}": value for name, value in found.items()}, batch_size=1, sync_dist=True)
