"""What a trained agent does, as a data set to imitate."""

from collections.abc import Callable
from typing import Any, ClassVar, Protocol, cast

import torch
from torch import Tensor

from datamodules.base import BatchKey, LeydenDataModule
from datamodules.rl.datamodule import RLDataModule
from datamodules.rl.episodes import EpisodeOutcomes
from datamodules.rl.loaders import Episodes

Act = Callable[[Tensor], Tensor]
SIDE_BY_SIDE = 10
TRAINING_SHARE = 0.8


class Teacher(Protocol):
    """A model that knows how to act.

    Attributes:
        device: where it expects observations.
    """

    device: torch.device

    def explore(self, obs: Tensor) -> Tensor:
        """Return the actions to take next, ``[n, m]``; they may be random."""

    def demonstrate(self, obs: Tensor) -> Tensor:
        """Return the actions to imitate, ``[n, m]``."""


class Demonstrations:
    """States with the actions that a teacher would take there.

    Attributes:
        obs: ``[states, n]``.
        action: ``[states, m]``.
        episode: number of the episode of each state, ``[states]``, rising.
    """

    def __init__(self, obs: Tensor, action: Tensor, episode: Tensor) -> None:
        self.obs, self.action, self.episode = obs, action, episode

    def __len__(self) -> int:
        return len(self.obs)

    def __getitem__(self, key: BatchKey) -> dict[str, Tensor]:
        rows = torch.from_numpy(key.local_indices)
        return {"obs": self.obs[rows], "action": self.action[rows]}

    def where(self, chosen: Tensor) -> "Demonstrations":
        """Return the states of a mask, ``[states]``."""
        return Demonstrations(self.obs[chosen], self.action[chosen], self.episode[chosen])


class TeacherDataModule(LeydenDataModule):
    """Demonstrations of the model's own teacher.

    ``setup`` plays whole episodes until there are ``demonstrations`` states. The teacher acts as it explored in training, so that
    states beside its path are seen too; what is to be imitated is its deterministic action in each of them. The first four fifths
    of the *episodes* are for training, the others for validation. All of it depends on the seed and the teacher alone: a resumed
    run, and every process of a parallel one, plays the same. Tests are those of :class:`RLDataModule`.

    Args:
        env: environment, see :func:`datamodules.rl.environments.make_env`.
        demonstrations: states to play at least.
        batch_size: states of a training step, on all processes together.
        eval_episodes: episodes that agents of this environment are evaluated on; they are left out of the demonstrations.
        test_episodes: episodes of the test.
        action_repeat: how often each action is applied.
        time_limit: steps after which an episode is cut; None: the environment's own limit.
        seed: seed of the episodes, the teacher's exploration and the order of batches.

    Raises:
        ValueError: if ``demonstrations`` is not positive; see also :class:`RLDataModule`.
    """

    smoke: ClassVar[dict[str, Any]] = {
        "demonstrations": 100,
        "batch_size": 8,
        "eval_episodes": 1,
        "test_episodes": 1,
        "time_limit": 20,
    }

    def __init__(
        self,
        env: str,
        demonstrations: int = 30_000,
        batch_size: int = 256,
        eval_episodes: int = 10,
        test_episodes: int = 20,
        action_repeat: int = 1,
        time_limit: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(batch_size, seed=seed)
        if demonstrations < 1:
            raise ValueError(f"demonstrations={demonstrations} must be at least 1")
        self.demonstrations = demonstrations
        self.first_episode = eval_episodes + test_episodes
        self.world = RLDataModule(
            env,
            eval_episodes=eval_episodes,
            test_episodes=test_episodes,
            action_repeat=action_repeat,
            time_limit=time_limit,
            seed=seed,
        )

    def model_arguments(self) -> dict[str, Any]:
        """Sizes of observations and actions."""
        return self.world.model_arguments()

    def setup(self, stage: str) -> None:
        """Play the demonstrations, unless there is only a test to come."""
        self.world.trainer = self.trainer
        if stage == "test":
            return
        assert self.trainer is not None
        played = self.play(cast(Teacher, self.trainer.lightning_module))
        episodes = int(played.episode[-1]) + 1
        for_training = played.episode < min(max(round(TRAINING_SHARE * episodes), 1), episodes - 1)
        self.train_set, self.val_set = played.where(for_training), played.where(~for_training)

    def play(self, teacher: Teacher) -> Demonstrations:
        """Let a teacher play until there are enough states, and two episodes at least."""
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            rounds = [self._round(teacher, 0)]
            while sum(map(len, rounds)) < self.demonstrations:
                rounds.append(self._round(teacher, len(rounds)))
        obs, action, episode = (torch.cat([getattr(part, name) for part in rounds]) for name in ("obs", "action", "episode"))
        last = max(int(episode[self.demonstrations - 1]), 1)
        return Demonstrations(obs, action, episode).where(episode <= last)

    def evaluate(self, act: Act, episodes: Tensor) -> EpisodeOutcomes:
        """Play the episodes of these numbers side by side."""
        return self.world.evaluate(act, episodes)

    def teardown(self, stage: str) -> None:
        """Close all environments."""
        self.world.teardown("test")

    def test_dataloader(self) -> Episodes:  # type: ignore[override]
        return self.world.test_dataloader()

    def _round(self, teacher: Teacher, number: int) -> Demonstrations:
        """Play the next episodes in step."""
        seen: list[Tensor] = []
        shown: list[Tensor] = []

        def act(obs: Tensor) -> Tensor:
            obs = obs.to(teacher.device)
            seen.append(obs.cpu())
            shown.append(teacher.demonstrate(obs).cpu())
            return teacher.explore(obs)

        episodes = number * SIDE_BY_SIDE + torch.arange(SIDE_BY_SIDE)
        lengths = self.evaluate(act, self.first_episode + episodes).lengths
        episode = torch.cat([episodes[lengths > step] for step in range(len(seen))])
        order = episode.argsort(stable=True)
        return Demonstrations(torch.cat(seen)[order], torch.cat(shown)[order], episode[order])
