"""Environments, replay and evaluation episodes as a LightningDataModule."""

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from lightning import LightningDataModule
from torch import Tensor

from datamodules.rl.collector import Collector
from datamodules.rl.environments import evaluation_seed, make_env, make_vector_env
from datamodules.rl.loaders import Episodes, Ticks
from datamodules.rl.replay import ReplayBuffer
from datamodules.rl.snapshots import get_snapshot, set_snapshot

Act = Callable[[Tensor], Tensor]


class RLDataModule(LightningDataModule):
    """Experience of an agent in an environment.

    Training has no data set: an epoch is the time between two evaluations, a batch is a *tick*, in which the model asks this module
    to act (``collect``), to draw transitions (``sample``) and, at the end of an epoch, to play evaluation episodes (``evaluate``).
    Every process has environments and a replay of its own.

    Args:
        env: environment, see :func:`datamodules.rl.environments.make_env`.
        total_env_steps: decisions of the whole run, on all processes together.
        num_envs: environments of each process, stepped together.
        train_freq: vector steps of a tick.
        replay_capacity: transitions that each process keeps.
        learning_starts: decisions, on all processes together, that are random and not learned from yet.
        eval_every_env_steps: decisions between two evaluations.
        eval_episodes: episodes of an evaluation, shared by all processes; they begin alike at every evaluation.
        test_episodes: episodes of the test, others than those of the evaluations.
        action_repeat: how often each action is applied.
        time_limit: steps after which an episode is cut; None: the environment's own limit.
        vectorization: ``sync``, ``async`` or ``auto``.
        seed: seed of environments and replay.

    Raises:
        ValueError: if the numbers do not fit together, see also ``make_env``.
    """

    smoke = {
        "total_env_steps": 40,
        "eval_every_env_steps": 40,
        "learning_starts": 20,
        "replay_capacity": 1_000,
        "train_freq": 20,
        "eval_episodes": 1,
        "test_episodes": 1,
        "time_limit": 20,
    }

    def __init__(
        self,
        env: str,
        total_env_steps: int = 1_000_000,
        num_envs: int = 1,
        train_freq: int = 1,
        replay_capacity: int = 1_000_000,
        learning_starts: int = 5_000,
        eval_every_env_steps: int = 10_000,
        eval_episodes: int = 10,
        test_episodes: int = 20,
        action_repeat: int = 1,
        time_limit: int | None = None,
        vectorization: Literal["sync", "async", "auto"] = "auto",
        seed: int = 0,
    ) -> None:
        super().__init__()
        numbers = {
            "total_env_steps": total_env_steps,
            "num_envs": num_envs,
            "train_freq": train_freq,
            "eval_every_env_steps": eval_every_env_steps,
            "eval_episodes": eval_episodes,
            "test_episodes": test_episodes,
        }
        for name, number in numbers.items():
            if number < 1:
                raise ValueError(f"{name}={number} must be at least 1")
        if eval_every_env_steps > total_env_steps:
            raise ValueError(f"eval_every_env_steps={eval_every_env_steps} exceeds total_env_steps={total_env_steps}")
        self.env, self.num_envs, self.train_freq, self.replay_capacity = env, num_envs, train_freq, replay_capacity
        self.total_env_steps, self.eval_every_env_steps = total_env_steps, eval_every_env_steps
        self.learning_starts = learning_starts
        self.eval_episodes, self.test_episodes = eval_episodes, test_episodes
        self.vectorization, self.seed = vectorization, seed
        self._made: dict[str, Any] = {"action_repeat": action_repeat, "time_limit": time_limit}
        self._stage_envs: list[Any] = []
        probe = make_env(env, **self._made)
        self.obs_dim, self.action_dim = probe.observation_space.shape[0], probe.action_space.shape[0]  # type: ignore[index]
        probe.close()

    @property
    def env_steps(self) -> int:
        """Decisions so far, on all processes together."""
        return self.collector.decisions * self._world_size

    def trainer_defaults(self) -> dict[str, Any]:
        """One epoch between two evaluations, and no data to share out."""
        epochs = math.ceil(self.total_env_steps / self.eval_every_env_steps)
        return {"max_epochs": epochs, "use_distributed_sampler": False}

    def model_arguments(self) -> dict[str, Any]:
        """Sizes of observations and actions."""
        return {"obs_dim": self.obs_dim, "action_dim": self.action_dim}

    def setup(self, stage: str) -> None:
        """Build the environments and the empty replay of this process."""
        if stage != "fit":
            return
        rank = self.trainer.global_rank if self.trainer else 0
        envs = make_vector_env(self.env, self.num_envs, seed=self.seed, rank=rank, vectorization=self.vectorization, **self._made)
        replay = ReplayBuffer(self.replay_capacity, [self.obs_dim], self.action_dim, self.num_envs, seed=self.seed + 1_000 * rank)
        self.collector = Collector(envs, replay)

    def teardown(self, stage: str) -> None:
        """Close all environments."""
        for env in self._stage_envs:
            env.close()
        self._stage_envs = []
        if stage == "fit":
            self.collector.envs.close()

    def train_dataloader(self) -> Ticks:
        per_tick = self.train_freq * self.num_envs * self._world_size
        if self.eval_every_env_steps % per_tick:
            raise ValueError(
                f"eval_every_env_steps={self.eval_every_env_steps} must be a multiple of the {per_tick} decisions of a tick "
                f"(train_freq {self.train_freq} x num_envs {self.num_envs} x {self._world_size} processes)"
            )
        return Ticks(self.eval_every_env_steps // per_tick)

    def val_dataloader(self) -> Episodes:
        return self._episodes(0, self.eval_episodes)

    def test_dataloader(self) -> Episodes:
        return self._episodes(self.eval_episodes, self.test_episodes)

    def collect(self, act: Act) -> int:
        """Act for one tick, at random until ``learning_starts``; return for how many decisions of this process updates are due."""
        device = self._device
        counted = 0
        for _ in range(self.train_freq):
            learning = self.env_steps >= self.learning_starts
            self.collector.step(act if learning else None, device)
            counted += self.num_envs if learning else 0
        return counted

    def sample(self, batch_size: int, device: torch.device) -> dict[str, Tensor]:
        """Draw transitions from this process's replay."""
        return self.collector.replay.sample(batch_size, device)

    def observations(self, count: int, device: torch.device) -> Tensor:
        """Return observations from this process's replay, ``[count, obs]``, or all of them if it holds no more."""
        replay = self.collector.replay
        if replay.size <= count:
            return replay.fields["obs"][: replay.size].to(device)
        return replay.sample(count, device)["obs"]

    def episode_returns(self) -> list[float]:
        """Take the returns of the training episodes that ended since the last call."""
        returns, self.collector.finished = self.collector.finished, []
        return returns

    @torch.inference_mode()
    def evaluate(self, act: Act, episodes: Tensor) -> Tensor:
        """Play the episodes of these numbers side by side and return their returns, ``[episodes]``."""
        while len(self._stage_envs) < len(episodes):
            self._stage_envs.append(make_env(self.env, **self._made))
        envs = self._stage_envs[: len(episodes)]
        seeds = [evaluation_seed(self.seed, number) for number in episodes.tolist()]
        obs = np.stack([env.reset(seed=seed)[0] for env, seed in zip(envs, seeds, strict=True)])
        returns, playing = torch.zeros(len(envs), dtype=torch.float64), list(range(len(envs)))
        while playing:
            actions = act(torch.from_numpy(obs[playing]).to(self._device)).cpu().numpy()
            going_on = []
            for index, action in zip(playing, actions, strict=True):
                obs[index], reward, terminated, truncated, _ = envs[index].step(action)
                returns[index] += float(reward)
                if not (terminated or truncated):
                    going_on.append(index)
            playing = going_on
        return returns.float()

    def rank_state_dict(self) -> dict[str, Any]:
        """Return all that this process alone knows: replay, episodes under way, environments."""
        collector = self.collector
        return {
            "env": self.env,
            "replay": collector.replay.state_dict(),
            "collector": collector.state_dict(),
            "environments": get_snapshot(collector.envs),
        }

    def load_rank_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where ``rank_state_dict`` was taken.

        Raises:
            ValueError: if it is of another environment.
        """
        if state["env"] != self.env:
            raise ValueError(f"the run was saved in {state['env']} and goes on in {self.env}: set data.env={state['env']}")
        set_snapshot(self.collector.envs, state["environments"])
        self.collector.replay.load_state_dict(state["replay"])
        self.collector.load_state_dict(state["collector"])

    def _episodes(self, first: int, count: int) -> Episodes:
        rank = self.trainer.global_rank if self.trainer else 0
        return Episodes(first, count, rank, self._world_size)

    @property
    def _world_size(self) -> int:
        return self.trainer.world_size if self.trainer else 1

    @property
    def _device(self) -> torch.device:
        return self.trainer.strategy.root_device if self.trainer else torch.device("cpu")
