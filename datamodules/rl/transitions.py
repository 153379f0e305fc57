"""Fixed transitions of an environment, to learn representations from without acting."""

import logging
from pathlib import Path
from typing import Any, ClassVar
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from datamodules.base import BatchKey, LeydenDataModule
from datamodules.rl.environments import make_env
from datamodules.roots import require_data, writable_folder, written_whole

logger = logging.getLogger(__name__)

GENERATOR_VERSION = 1
"""Part of the cache key; raise it when the transitions of a seed change."""

FIELDS = ("obs", "action", "reward", "next_obs", "terminated")
SPLITS = ("train", "val", "test")

Arrays = dict[str, np.ndarray]


class TransitionSet:
    """Transitions in memory.

    Attributes:
        obs, next_obs: states before and after, float32 ``[N, n]``.
        action: float32 ``[N, m]``.
        reward: float32 ``[N]``.
        terminated: whether the episode ended there by itself, bool ``[N]``.
    """

    def __init__(self, arrays: Arrays) -> None:
        self.obs, self.action, self.reward, self.next_obs, self.terminated = (torch.from_numpy(arrays[name]) for name in FIELDS)

    def __len__(self) -> int:
        return len(self.obs)

    def __getitem__(self, key: BatchKey) -> dict[str, Tensor]:
        rows = torch.from_numpy(key.local_indices)
        return {name: getattr(self, name)[rows] for name in FIELDS}


class TransitionDataModule(LeydenDataModule):
    """Transitions of a random policy that holds each action for some steps, or those of a file.

    The transitions of ``env`` are collected once and kept in the user's cache folder. Training, validation and test have other
    seeds, hence other episodes. A file is cut into training, validation and test transitions in this order.

    Args:
        env: environment, see :func:`datamodules.rl.environments.make_env`.
        path: an ``.npz`` with ``obs [N, n]``, ``action [N, m]``, ``reward [N]``, ``next_obs [N, n]`` and ``terminated [N]`` to read
            instead; a relative path is also looked for in the data folders.
        transitions: for training.
        val_transitions: for validation.
        test_transitions: for the test.
        hold: steps that each random action is held; for a file without meaning.
        batch_size: global batch size.
        eval_batch_size: global batch size of validation, test and prediction; default ``batch_size``.
        num_workers: loader processes per rank.
        seed: seed of the data order.
        generator_seed: seed of the collected transitions, apart from ``seed`` so that runs of several seeds share their data.
        root: folder that keeps the collected transitions; default the user's cache folder.

    Raises:
        ValueError: if not exactly one of ``env`` and ``path`` is given, a number is not positive, or the file does not hold what
            it should.
        FileNotFoundError: if there is no such file.
    """

    smoke: ClassVar[dict[str, Any]] = {"transitions": 64, "val_transitions": 32, "test_transitions": 32, "batch_size": 16}

    def __init__(
        self,
        env: str | None = None,
        path: str | None = None,
        transitions: int = 2_000,
        val_transitions: int = 1_000,
        test_transitions: int = 1_000,
        hold: int = 4,
        batch_size: int = 128,
        eval_batch_size: int | None = None,
        num_workers: int = 0,
        seed: int = 0,
        generator_seed: int = 0,
        root: str | None = None,
    ) -> None:
        super().__init__(batch_size, eval_batch_size, num_workers, seed)
        if (env is None) == (path is None):
            raise ValueError(f"TransitionDataModule needs either `env` or `path`, got {env=} and {path=}")
        if min(transitions, val_transitions, test_transitions, hold) < 1:
            raise ValueError(
                f"{transitions=}, {val_transitions=}, {test_transitions=} and {hold=} of TransitionDataModule must be at least 1"
            )
        self.env, self.hold, self.generator_seed, self.root = env, hold, generator_seed, root
        self.sizes = dict(zip(SPLITS, (transitions, val_transitions, test_transitions), strict=True))
        self._given = self._read_given(path) if path else None
        if self._given:
            self.obs_dim, self.action_dim = self._given["obs"].shape[1], self._given["action"].shape[1]
        else:
            probe = make_env(str(env))
            self.obs_dim, self.action_dim = probe.observation_space.shape[0], probe.action_space.shape[0]  # type: ignore[index]
            probe.close()

    def model_arguments(self) -> dict[str, Any]:
        """Sizes of observations and actions."""
        return {**super().model_arguments(), "obs_dim": self.obs_dim, "action_dim": self.action_dim}

    def prepare_data(self) -> None:
        """Collect the transitions unless sound copies are kept already."""
        for split in SPLITS if self.env else ():
            target = self._kept(split)
            if target.exists():
                try:
                    read_transitions(target)
                    continue
                except ValueError as error:
                    logger.warning("%s, it is made anew", error)
            arrays = collect_transitions(str(self.env), self.sizes[split], self.hold, self._seed(split))
            try:
                with written_whole(target) as temporary:
                    np.savez(temporary, **arrays)  # type: ignore[arg-type]
            except OSError as error:
                raise OSError(f"cannot keep transitions in {target.parent} ({error}): set `root` to a writable folder") from error

    def setup(self, stage: str) -> None:
        """Read the transitions."""
        if self._given:
            ends = np.cumsum(list(self.sizes.values()))
            pieces = [
                {name: values[end - size : end] for name, values in self._given.items()}
                for size, end in zip(self.sizes.values(), ends, strict=True)
            ]
        else:
            pieces = [read_transitions(self._kept(split)) for split in SPLITS]
        self.train_set, self.val_set, self.test_set = map(TransitionSet, pieces)

    def _kept(self, split: str) -> Path:
        """File of a split, named by everything that it depends on."""
        name = str(self.env).replace(":", "-").replace("/", "-")
        file = f"{name}_{self.sizes[split]}_hold{self.hold}_seed{self._seed(split)}_v{GENERATOR_VERSION}.npz"
        return writable_folder(self.root) / "transitions" / file

    def _seed(self, split: str) -> int:
        return len(SPLITS) * self.generator_seed + SPLITS.index(split)

    def _read_given(self, path: str) -> Arrays:
        file = Path(path).expanduser()
        file = file if file.exists() else require_data(path, self.root)
        arrays = read_transitions(file)
        if len(arrays["obs"]) < sum(self.sizes.values()):
            wanted = " + ".join(f"{size} for {split}" for split, size in self.sizes.items())
            raise ValueError(f"{file} has only {len(arrays['obs'])} transitions, too few for {wanted}")
        return arrays


def collect_transitions(env: str, count: int, hold: int, seed: int) -> Arrays:
    """Act at random and return what happened.

    Args:
        env: environment, see :func:`datamodules.rl.environments.make_env`.
        count: number N of transitions.
        hold: steps that each action, uniform in [-1, 1], is held.
        seed: seed of the environment and of the actions.

    Returns:
        Arrays as :class:`TransitionSet` has them.
    """
    world = make_env(env)
    draws = np.random.default_rng(seed)
    steps: list[tuple[Any, ...]] = []
    obs, _ = world.reset(seed=seed)
    action = np.zeros(0, dtype=np.float32)
    for step in range(count):
        if step % hold == 0:
            action = draws.uniform(-1, 1, world.action_space.shape).astype(np.float32)
        next_obs, reward, terminated, truncated, _ = world.step(action)
        steps.append((obs, action, np.float32(reward), next_obs, terminated))
        obs = world.reset()[0] if terminated or truncated else next_obs
    world.close()
    return {name: np.stack(values) for name, values in zip(FIELDS, zip(*steps, strict=True), strict=True)}


def read_transitions(file: Path) -> Arrays:
    """Return the transitions of an ``.npz`` as :class:`TransitionSet` wants them.

    Raises:
        ValueError: if an array is missing, has another shape than it should or holds NaN or infinity; names the file and what is
            wrong with it.
    """
    try:
        with np.load(file) as archive:
            missing = [name for name in FIELDS if name not in archive]
            arrays = {name: archive[name] for name in FIELDS if name in archive}
    except (OSError, EOFError, ValueError, TypeError, BadZipFile) as error:
        raise ValueError(f"{file} is no readable .npz archive of arrays ({error})") from error
    if missing:
        raise ValueError(f"{file} lacks {', '.join(missing)}: transitions need {', '.join(FIELDS)}")
    for name, values in arrays.items():
        if values.dtype.kind not in "fiub":
            raise ValueError(f"{name} in {file} holds {values.dtype}, not numbers")
        if not np.isfinite(values).all():
            raise ValueError(f"{name} in {file} holds NaN or infinity: remove those transitions")
        dimensions = 1 if name in ("reward", "terminated") else 2
        if values.ndim != dimensions or len(values) != len(arrays["obs"]) or not len(values):
            wanted = "[N]" if dimensions == 1 else "[N, size]"
            raise ValueError(f"{name} in {file} has shape {list(values.shape)}, it should be {wanted} with N of obs and not 0")
    if arrays["obs"].shape != arrays["next_obs"].shape:
        shapes = list(arrays["obs"].shape), list(arrays["next_obs"].shape)
        raise ValueError(f"obs and next_obs in {file} have shapes {shapes[0]} and {shapes[1]}, which should be equal")
    return {name: values.astype(bool if name == "terminated" else np.float32) for name, values in arrays.items()}
