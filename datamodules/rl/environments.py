"""Environments by name, wrapped alike: flat float32 observations, actions in [-1, 1], several in step."""

import difflib
import functools
import importlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

try:
    import gymnasium as gym
except ImportError as error:
    raise ImportError("environments need gymnasium: pip install 'leyden[rl]'") from error

from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import FlattenObservation, RescaleAction, TimeLimit

from datamodules.rl.dm_control_env import DmControlEnv
from datamodules.rl.environment_wrappers import ActionRepeat, Float32Observation

Vectorization = Literal["sync", "async", "auto"]

RANK_STRIDE = 1_000
EVALUATION_OFFSET = 1_000_000
SLOW_STEP_SECONDS = 2e-3
MEASURED_STEPS = 20


def make_env(
    id: str, *, seed: int | None = None, action_repeat: int = 1, time_limit: int | None = None, render_mode: str | None = None
) -> gym.Env:
    """Build an environment with observations float32 ``[obs]`` and actions in [-1, 1] ``[m]``.

    ============================ ==================================================================================
    id                           what is built
    ============================ ==================================================================================
    ``gym:Hopper-v5``            a registered Gymnasium environment
    ``dmc:finger-spin``          a task of the DeepMind control suite
    ``mod:package.module:Name``  ``module`` is imported; ``Name`` is a class in it, or an environment it registers
    ============================ ==================================================================================

    Wrappers from the inside: FlattenObservation, RescaleAction, TimeLimit, ActionRepeat, float32. Unless the user has set it,
    ``MUJOCO_GL`` is set before anything of MuJoCo is imported, for the whole process: with ``render_mode`` to ``egl``, or ``glfw``
    where there is a screen, and else to ``disabled``, after which the process cannot draw MuJoCo scenes.

    Args:
        id: prefix and name.
        seed: of the first reset, which is done here, and of the action space; the next ``reset()`` begins the second episode.
        action_repeat: how often an action is applied.
        time_limit: steps of the base environment, before repeats, after which an episode is truncated. None: its own limit, if any.
        render_mode: handed to the environment.

    Raises:
        ImportError: if a package is missing, or mujoco is too new for ``dmc:``.
        ValueError: if the name is unknown, actions are not a bounded box, observations hold images or do not fit in a flat box,
            or a number is not positive.
    """
    if time_limit is not None and time_limit < 1:
        raise ValueError(f"time_limit={time_limit} must be 1 or more")
    os.environ.setdefault("MUJOCO_GL", _opengl(render_mode))
    env, own_limit = _base(id, time_limit is not None, render_mode)
    _check_spaces(id, env)
    env = RescaleAction(FlattenObservation(env), np.float32(-1), np.float32(1))
    if limit := time_limit or own_limit:
        env = TimeLimit(env, limit)
    env = Float32Observation(ActionRepeat(env, action_repeat))
    if seed is not None:
        env.action_space.seed(seed)
        env.reset(seed=seed)
    return env


def episode_limit(env: gym.Env) -> int | None:
    """Return the steps of the base environment after which the clock ends an episode, None if it never does."""
    while isinstance(env, gym.Wrapper):
        if isinstance(env, TimeLimit):
            return env._max_episode_steps
        env = env.env
    return None


def training_seed(seed: int, rank: int, index: int) -> int:
    """Return ``seed + 1000 rank + index``, the seed of environment ``index`` of process ``rank``.

    Raises:
        ValueError: if the process would share seeds with the next one.
    """
    if index >= RANK_STRIDE:
        raise ValueError(f"a process has seeds for {RANK_STRIDE} environments, {index + 1} were asked for: use more processes")
    return seed + RANK_STRIDE * rank + index


def evaluation_seed(seed: int, episode: int) -> int:
    """Return ``seed + 10**6 + episode``: the same episodes at every evaluation and for every number of processes."""
    return seed + EVALUATION_OFFSET + episode


def make_vector_env(
    id: str,
    num_envs: int,
    *,
    seed: int = 0,
    rank: int = 0,
    vectorization: Vectorization = "sync",
    action_repeat: int = 1,
    time_limit: int | None = None,
    render_mode: str | None = None,
) -> SyncVectorEnv | AsyncVectorEnv:
    """Build environments that reset themselves in the step that ends their episode (``AutoresetMode.SAME_STEP``).

    Environment ``i`` is seeded by :func:`training_seed`. ``async`` steps each in a process of its own, which pays only where a
    step is slow; ``auto`` chooses it if a step takes more than 2 ms here and now. Trajectories are the same, but only ``sync`` has
    snapshots.

    Args:
        id: as in :func:`make_env`, like ``action_repeat``, ``time_limit`` and ``render_mode``.
        num_envs: number of environments.
        seed: seed of the run.
        rank: number of this process.
        vectorization: ``sync``, ``async`` or ``auto``.

    Raises:
        ValueError: if there is no environment to build, or the mode is unknown; see also :func:`make_env`.
    """
    if num_envs < 1:
        raise ValueError(f"num_envs={num_envs} must be 1 or more")
    if vectorization not in ("sync", "async", "auto"):
        raise ValueError(f"vectorization={vectorization!r} is unknown, use sync, async or auto")
    build = functools.partial(make_env, id, action_repeat=action_repeat, time_limit=time_limit, render_mode=render_mode)
    seeds = [training_seed(seed, rank, index) for index in range(num_envs)]
    builders = [functools.partial(build, seed=own) for own in seeds]
    if vectorization == "auto":
        vectorization = "async" if num_envs > 1 and _step_seconds(build) > SLOW_STEP_SECONDS else "sync"
    envs: SyncVectorEnv | AsyncVectorEnv
    if vectorization == "async":
        envs = AsyncVectorEnv(builders, context="spawn", autoreset_mode=AutoresetMode.SAME_STEP)
    else:
        envs = SyncVectorEnv(builders, autoreset_mode=AutoresetMode.SAME_STEP)
    envs.action_space.seed(seeds[0])
    return envs


def next_observations(observations_ND: np.ndarray, infos: dict[str, Any]) -> np.ndarray:
    """Return the observations that the actions led to, from what a step of a vector environment returned.

    Where an episode ended, ``observations_ND`` holds the first observation of the next one, and ``infos["final_obs"]`` the last of
    this one.

    Args:
        observations_ND: ``[environments, obs]``; not changed.
        infos: of the same step.
    """
    if "final_obs" not in infos:
        return observations_ND
    ended_N = infos["_final_obs"]
    reached_ND = observations_ND.copy()
    reached_ND[ended_N] = np.stack(infos["final_obs"][ended_N])
    return reached_ND


def _opengl(render_mode: str | None) -> str:
    """Return the value of ``MUJOCO_GL`` with which scenes can be drawn here, or with which no time is lost on that."""
    if render_mode is None:
        return "disabled"
    return "egl" if sys.platform == "linux" and "DISPLAY" not in os.environ else "glfw"


def _base(id: str, endless: bool, render_mode: str | None) -> tuple[gym.Env, int | None]:
    """Build the bare environment, and return its own limit of steps where that is left to us."""
    prefix, _, name = id.partition(":")
    if prefix == "dmc" and name:
        return DmControlEnv(name, endless, render_mode), None
    if prefix == "gym" and name:
        return _registered(id, name, render_mode)
    path, _, attribute = name.partition(":")
    if prefix == "mod" and path and attribute:
        return _from_module(id, path, attribute, render_mode)
    close = difflib.get_close_matches(id, gym.registry, n=1)
    meant = f"did you mean gym:{close[0]}?" if close else "use gym:Hopper-v5, dmc:finger-spin or mod:package.module:Name"
    raise ValueError(f"environment {id!r} has no known prefix; {meant}")


def _registered(id: str, name: str, render_mode: str | None) -> tuple[gym.Env, int | None]:
    try:
        limit = gym.spec(name).max_episode_steps
        return gym.make(name, max_episode_steps=-1, disable_env_checker=True, render_mode=render_mode), limit
    except (gym.error.UnregisteredEnv, gym.error.DeprecatedEnv) as error:
        close = difflib.get_close_matches(name, sorted(gym.registry, reverse=True), n=3)
        meant = f"did you mean {', '.join(close)}?" if close else "see gymnasium.pprint_registry()"
        raise ValueError(f"environment {id!r} is unknown; {meant}") from error
    except (ImportError, gym.error.DependencyNotInstalled) as error:
        raise ImportError(f"environment {id!r} cannot be built ({error}): pip install 'leyden[rl]'") from error


def _from_module(id: str, path: str, name: str, render_mode: str | None) -> tuple[gym.Env, int | None]:
    try:
        module = importlib.import_module(path)
    except ModuleNotFoundError as error:
        raise ValueError(f"environment {id!r}: {error}; add its folder to PYTHONPATH") from error
    found = getattr(module, name, None)
    if found is None:
        return _registered(id, name, render_mode)
    if not (isinstance(found, type) and issubclass(found, gym.Env)):
        raise ValueError(f"environment {id!r}: {path}.{name} is no gymnasium.Env")
    if render_mode is None:
        return found(), None
    try:
        return found(render_mode=render_mode), None  # type: ignore[call-arg]
    except TypeError as error:
        raise ValueError(f"environment {id!r} cannot be drawn: {error}") from error


def _check_spaces(id: str, env: gym.Env) -> None:
    actions, observations = env.action_space, env.observation_space
    if not isinstance(actions, gym.spaces.Box):
        raise ValueError(f"environment {id!r} has the action space {actions}, only a Box of continuous actions is supported")
    if not actions.is_bounded("both"):
        raise ValueError(f"environment {id!r} has unbounded actions ({actions}), which cannot be scaled to [-1, 1]: bound them")
    spaces = observations.values() if isinstance(observations, gym.spaces.Dict) else [observations]
    if any(len(space.shape or ()) >= 3 for space in spaces):
        raise ValueError(f"environment {id!r} shows images ({observations}), only state observations are supported")
    if not (observations.is_np_flattenable and isinstance(gym.spaces.flatten_space(observations), gym.spaces.Box)):
        raise ValueError(f"environment {id!r} has the observation space {observations}, which is no flat array")


def _step_seconds(build: Callable[[], gym.Env]) -> float:
    """Return the median time of a step with random actions in an environment of its own."""
    env = build()
    env.action_space.seed(0)
    env.reset(seed=0)
    seconds = []
    for _ in range(MEASURED_STEPS):
        start = time.perf_counter()
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        seconds.append(time.perf_counter() - start)
        if terminated or truncated:
            env.reset()
    env.close()
    return float(np.median(seconds))
