"""Environments, replay and evaluation episodes as a LightningDataModule."""

import math
from collections.abc import Callable
from typing import Any, Literal

import gymnasium as gym
import torch
from lightning import LightningDataModule, Trainer
from lightning.pytorch.utilities.rank_zero import rank_zero_info
from torch import Tensor

from datamodules.rl.collector import Collector
from datamodules.rl.environments import episode_limit, evaluation_seed, make_env, make_vector_env, training_seed
from datamodules.rl.episodes import EpisodeOutcomes, play_episodes
from datamodules.rl.loaders import Episodes, Ticks
from datamodules.rl.observation_normaliser import ObservationNormaliser
from datamodules.rl.recording import EpisodeRecording, record_episode
from datamodules.rl.replay import ReplayBuffer
from datamodules.rl.return_scaler import ReturnScaler, discount_of
from datamodules.rl.snapshots import get_snapshot, set_snapshot, supports

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
        prioritised: draw transitions in proportion to priorities, which the model gives them.
        replay_folder: keep the replay in unnamed files in this folder, which is on a fast disk, instead of in memory.
        vectorization: ``sync``, ``async`` or ``auto``.
        normalise_observations: show the model observations of mean 0 and variance 1, by what all processes saw while they trained.
        scale_rewards: show the model rewards divided by the size of discounted returns, see ``ReturnScaler`` and ``discount_of``.
        render: let :meth:`record_episode` keep pictures; needs a renderer.
        merge_every_ticks: ticks between two exchanges of these statistics among the processes.
        seed: seed of environments and replay.

    An environment without exact snapshots (see :func:`datamodules.rl.snapshots.supports`) is resumed at an episode's boundary: its
    unfinished episode counts as truncated and another one begins.

    Raises:
        ValueError: if the numbers do not fit together or with the trainer's settings, see also ``make_env``.
    """

    smoke = {
        "total_env_steps": 40,
        "eval_every_env_steps": 40,
        "learning_starts": 20,
        "replay_capacity": 1_000,
        "train_freq": 20,
        "eval_episodes": 2,
        "test_episodes": 2,
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
        prioritised: bool = False,
        replay_folder: str | None = None,
        vectorization: Literal["sync", "async", "auto"] = "auto",
        normalise_observations: bool = False,
        scale_rewards: bool = False,
        merge_every_ticks: int = 10,
        render: bool = False,
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
            "merge_every_ticks": merge_every_ticks,
        }
        for name, number in numbers.items():
            if number < 1:
                raise ValueError(f"{name}={number} must be at least 1")
        if eval_every_env_steps > total_env_steps:
            raise ValueError(f"eval_every_env_steps={eval_every_env_steps} exceeds total_env_steps={total_env_steps}")
        self.env, self.num_envs, self.train_freq, self.replay_capacity = env, num_envs, train_freq, replay_capacity
        self.total_env_steps, self.eval_every_env_steps = total_env_steps, eval_every_env_steps
        self.learning_starts, self.action_repeat = learning_starts, action_repeat
        self.eval_episodes, self.test_episodes = eval_episodes, test_episodes
        self.vectorization, self.prioritised, self.seed = vectorization, prioritised, seed
        self._replay_options: dict[str, Any] = {"prioritised": prioritised, "folder": replay_folder}
        self._made: dict[str, Any] = {"action_repeat": action_repeat, "time_limit": time_limit}
        self._stage_envs: list[Any] = []
        self.render, self._render_mode = render, "rgb_array" if render else None
        probe = make_env(env, render_mode=self._render_mode, **self._made)
        if render:
            _check_pictures(env, probe)
        limit = episode_limit(probe) if scale_rewards else None
        if scale_rewards and limit is None:
            raise ValueError(f"data.scale_rewards=true needs to know how long an episode of {env} is: set data.time_limit")
        self.scaler = ReturnScaler(num_envs, discount_of(limit, action_repeat)) if limit else None
        self.obs_dim, self.action_dim = probe.observation_space.shape[0], probe.action_space.shape[0]  # type: ignore[index]
        probe.close()
        self.merge_every_ticks, self._ticks = merge_every_ticks, 0
        self.normaliser = ObservationNormaliser([self.obs_dim]) if normalise_observations else None

    @property
    def env_steps(self) -> int:
        """Decisions so far, on all processes together."""
        return self.collector.decisions * self._world_size

    @property
    def epochs(self) -> int:
        """Evaluations of a run."""
        return math.ceil(self.total_env_steps / self.eval_every_env_steps)

    def trainer_defaults(self) -> dict[str, Any]:
        """One epoch between two evaluations, and no data to share out."""
        return {"max_epochs": self.epochs, "use_distributed_sampler": False}

    def model_arguments(self) -> dict[str, Any]:
        """Sizes of observations and actions."""
        return {"obs_dim": self.obs_dim, "action_dim": self.action_dim}

    def setup(self, stage: str) -> None:
        """Build the environments and the empty replay of this process."""
        if stage != "fit":
            return
        if self.trainer:
            self._refuse_other_lengths(self.trainer)
        rank = self._rank
        envs = make_vector_env(self.env, self.num_envs, seed=self.seed, rank=rank, vectorization=self.vectorization, **self._made)
        replay = ReplayBuffer(
            self.replay_capacity,
            [self.obs_dim],
            self.action_dim,
            self.num_envs,
            seed=self.seed + 1_000 * rank,
            **self._replay_options,
        )
        self.collector = Collector(envs, replay, self.scaler)
        self._exact = supports(envs)
        if not self._exact:
            rank_zero_info(f"{self.env} has no exact snapshots: a killed run goes on with new episodes")

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
        self.collector.ended.clear()
        for _ in range(self.train_freq):
            learning = self.env_steps >= self.learning_starts
            if self.normaliser:
                self.normaliser.observe(self.collector.obs)
            self.collector.step(self._on_normalised(act) if learning else None, device)
            counted += self.num_envs if learning else 0
        self._ticks += 1
        if self._ticks % self.merge_every_ticks == 0:
            if self.normaliser:
                self.normaliser.merge_ranks()
            if self.scaler:
                self.scaler.merge_ranks()
        return counted

    def sample(self, batch_size: int, device: torch.device) -> dict[str, Tensor]:
        """Draw transitions from this process's replay."""
        batch = self.collector.replay.sample(batch_size, device)
        if self.normaliser:
            batch |= {name: self.normaliser(batch[name]) for name in ("obs", "next_obs")}
        if self.scaler:
            batch["reward"] = self.scaler(batch["reward"])
        return batch

    def observations(self, count: int, device: torch.device) -> Tensor:
        """Return observations from this process's replay, ``[count, obs]``, or all of them if it holds no more."""
        replay = self.collector.replay
        if replay.size > count:
            return self.sample(count, device)["obs"]
        obs = replay.fields["obs"][: replay.size].to(device)
        return self.normaliser(obs) if self.normaliser else obs

    def newest_observations(self, count: int, device: torch.device) -> Tensor:
        """Return the newest observations in this process's replay, ``[count, obs]``, without drawing any random number."""
        replay = self.collector.replay
        obs = replay.fields["obs"][replay.newest(count)].to(device)
        return self.normaliser(obs) if self.normaliser else obs

    def update_priorities(self, index: Tensor, priority: Tensor) -> None:
        """Give drawn transitions (``index`` of a sample) their new priorities, both ``[B]``."""
        self.collector.replay.update_priorities(index, priority)

    def reset_max_priority(self) -> None:
        """Let new transitions begin with the largest priority that there is now."""
        self.collector.replay.reset_max_priority()

    def ended_episodes(self) -> list[tuple[float, int]]:
        """Return the returns and lengths of the training episodes of this process that ended in the last tick."""
        return list(self.collector.ended)

    def episode_returns(self) -> list[float]:
        """Take the returns of the training episodes that ended since the last call."""
        returns, self.collector.finished = self.collector.finished, []
        return returns

    def evaluate(self, act: Act, episodes: Tensor) -> EpisodeOutcomes:
        """Play the episodes of these numbers side by side."""
        while len(self._stage_envs) < len(episodes):
            self._stage_envs.append(make_env(self.env, **self._made))
        seeds = [evaluation_seed(self.seed, number) for number in episodes.tolist()]
        return play_episodes(self._stage_envs[: len(episodes)], self._on_normalised(act), seeds, self._device)

    def record_episode(self, act: Act, number: int) -> EpisodeRecording:
        """Play the evaluation episode of this number and write it down, with observations as the environment shows them."""
        env = make_env(self.env, render_mode=self._render_mode, **self._made)
        try:
            return record_episode(env, self._on_normalised(act), evaluation_seed(self.seed, number), self._device)
        finally:
            env.close()

    def as_observed(self, states: Tensor) -> Tensor:
        """Return states that the model knows, ``[..., obs]``, as the environment shows them."""
        return self.normaliser.shared.denormalise(states) if self.normaliser else states

    def state_dict(self) -> dict[str, Any]:
        """Return the statistics that all processes share."""
        normaliser = {"normaliser": self.normaliser.shared.state_dict()} if self.normaliser else {}
        return normaliser | ({"scaler": self.scaler.state_dict()} if self.scaler else {})

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self.normaliser:
            self.normaliser.shared.load_state_dict(state_dict["normaliser"])
        if self.scaler:
            self.scaler.load_state_dict(state_dict["scaler"])

    def rank_state_dict(self) -> dict[str, Any]:
        """Return all that this process alone knows: replay, episodes under way, environments."""
        collector = self.collector
        return {
            "env": self.env,
            "ticks": self._ticks,
            "replay": collector.replay.state_dict() if self._exact else collector.replay.state_dict_at_boundary(),
            "collector": collector.state_dict(),
            "environments": get_snapshot(collector.envs) if self._exact else None,
            "normaliser": self.normaliser.unmerged.state_dict() if self.normaliser else None,
            "scaler": self.scaler.rank_state_dict() if self.scaler else None,
        }

    def load_rank_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where ``rank_state_dict`` was taken.

        Raises:
            ValueError: if it is of another environment.
        """
        if state["env"] != self.env:
            raise ValueError(f"the run was saved in {state['env']} and goes on in {self.env}: set data.env={state['env']}")
        self._ticks = state["ticks"]
        self.collector.replay.load_state_dict(state["replay"])
        self.collector.load_state_dict(state["collector"])
        if self.normaliser:
            self.normaliser.unmerged.load_state_dict(state["normaliser"])
        if self.scaler:
            self.scaler.load_rank_state_dict(state["scaler"])
        if self._exact:
            set_snapshot(self.collector.envs, state["environments"])
        else:
            self.collector.begin_anew(training_seed(self.seed, self._rank, 0))

    def _refuse_other_lengths(self, trainer: Trainer) -> None:
        """A run ends after ``total_env_steps`` and its epochs end at evaluations, and at nothing else."""
        if trainer.max_epochs != self.epochs or trainer.max_steps != -1:
            raise ValueError(
                f"trainer.max_epochs={trainer.max_epochs} and trainer.max_steps={trainer.max_steps} do not fit to "
                f"data.total_env_steps={self.total_env_steps}, which alone sets the length of a run: leave them out"
            )
        if trainer.overfit_batches:  # type: ignore[attr-defined]
            raise ValueError("trainer.overfit_batches has no meaning here, an agent makes its own data: leave it out")
        limit = trainer.limit_train_batches
        if limit < (1.0 if isinstance(limit, float) else len(self.train_dataloader())):
            raise ValueError(
                f"trainer.limit_train_batches={limit} would cut an epoch of {len(self.train_dataloader())} ticks short: "
                "lower data.eval_every_env_steps instead"
            )

    def _on_normalised(self, act: Act) -> Act:
        """Let a policy see observations as the model knows them."""
        normaliser = self.normaliser
        return act if normaliser is None else lambda obs: act(normaliser(obs))

    def _episodes(self, first: int, count: int) -> Episodes:
        return Episodes(first, count, self._rank, self._world_size)

    @property
    def _rank(self) -> int:
        return self.trainer.global_rank if self.trainer else 0

    @property
    def _world_size(self) -> int:
        return self.trainer.world_size if self.trainer else 1

    @property
    def _device(self) -> torch.device:
        return self.trainer.strategy.root_device if self.trainer else torch.device("cpu")


def _check_pictures(id: str, env: gym.Env) -> None:
    """Draw one picture, so that a missing renderer is known before the training and not after it."""
    try:
        env.reset(seed=0)
        env.render()
    except Exception as error:
        raise ValueError(
            f"data.render=true, but {id} cannot be drawn here ({error}); MuJoCo needs MUJOCO_GL=egl, osmesa or glfw and the "
            "library of that name, other environments their own extra of gymnasium; or leave data.render out"
        ) from error
