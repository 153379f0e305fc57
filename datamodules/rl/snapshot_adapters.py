"""What makes up the state of each kind of environment and wrapper."""

import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import FlattenObservation, OrderEnforcing, PassiveEnvChecker, RescaleAction, TimeLimit

from datamodules.rl.dm_control_env import DmControlEnv
from datamodules.rl.environment_wrappers import ActionRepeat, Float32Observation

MUJOCO_ROOM = "gymnasium.envs.mujoco."
CLASSIC_ROOM = "gymnasium.envs.classic_control."
CLASSIC_STATE = ("state", "last_u", "steps_beyond_terminated")
STATELESS = (ActionRepeat, FlattenObservation, Float32Observation, PassiveEnvChecker, RescaleAction)


class Adapter(NamedTuple):
    """For which layers it is, and how their state is read and written."""

    predicate: Callable[[gym.Env], bool]
    get: Callable[[Any], dict[str, Any]]
    set: Callable[[Any, dict[str, Any]], None]


def _attributes(predicate: Callable[[gym.Env], bool], *names: str) -> Adapter:
    """State that lies in attributes; those that a layer does not have are left out."""

    def read(layer: Any) -> dict[str, Any]:
        return {name: getattr(layer, name) for name in names if hasattr(layer, name)}

    def write(layer: Any, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(layer, name, value)

    return Adapter(predicate, read, write)


def _is(*classes: type) -> Callable[[gym.Env], bool]:
    return lambda layer: type(layer) in classes


def _lives_in(room: str) -> Callable[[gym.Env], bool]:
    return lambda layer: type(layer).__module__.startswith(room)


def _get_mujoco(env: Any) -> dict[str, Any]:
    """Keep the whole ``mjData``.

    The integration state alone (``mj_getState``) is not exact: Ant and Humanoid read quantities that the previous step derived.
    """
    import mujoco

    return {"mujoco": mujoco.__version__, "data": zlib.compress(env.data.__getstate__(), level=1)}


def _set_mujoco(env: Any, state: dict[str, Any]) -> None:
    """Copy the data into place, so that the renderer and others that hold ``env.data`` see it.

    ``__setstate__`` on an empty ``MjData`` is what its pickle would do; without the pickle around it, the bytes can name no code to
    run. MuJoCo's reader still trusts their content: the checksum of zlib finds damage, not malice.
    """
    import mujoco

    _check_version(state["mujoco"], mujoco.__version__)
    loaded = mujoco.MjData.__new__(mujoco.MjData)
    try:
        loaded.__setstate__(zlib.decompress(state["data"]))
    except zlib.error as error:
        raise ValueError(f"the snapshot's MuJoCo data is damaged ({error}): use an earlier checkpoint") from error
    sizes = [(data.qpos.size, data.qvel.size, data.ctrl.size, len(data.xpos), len(data.geom_xpos)) for data in (loaded, env.data)]
    if sizes[0] != sizes[1]:
        raise ValueError(
            f"the snapshot is of another MuJoCo model, its sizes are {sizes[0]}, not {sizes[1]}: use the same xml_file"
        )
    mujoco.mj_copyData(env.data, env.model, loaded)


def _get_dm_control(env: Any) -> dict[str, Any]:
    """Keep MuJoCo's integration state (0.2 to 6 kB), what the task changed in the model, its counters and its random numbers."""
    import mujoco

    physics, inner = env.dm_env.physics, env.dm_env
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    integration = np.empty(mujoco.mj_stateSize(physics.model.ptr, kind))
    mujoco.mj_getState(physics.model.ptr, physics.data.ptr, integration, kind)
    return {
        "mujoco": mujoco.__version__,
        "task": env.task_name,
        "integration": integration,
        "model": env.model_changes(),
        "attributes": {
            name: value for name, value in vars(inner.task).items() if isinstance(value, (bool, int, float, np.ndarray))
        },
        "random": inner.task.random.get_state(legacy=False),
        "step_count": inner._step_count,
        "reset_next_step": inner._reset_next_step,
    }


def _set_dm_control(env: Any, state: dict[str, Any]) -> None:
    """Restore the state and derive the rest with ``mj_step1``, the call with which every step of dm_control ends."""
    import mujoco

    _check_version(state["mujoco"], mujoco.__version__)
    if state["task"] != env.task_name:
        raise ValueError(f"the snapshot is of dmc:{state['task']}, not of dmc:{env.task_name}: build the environment as it was")
    physics, inner = env.dm_env.physics, env.dm_env
    env.change_model(state["model"])
    mujoco.mj_setState(physics.model.ptr, physics.data.ptr, state["integration"], mujoco.mjtState.mjSTATE_INTEGRATION)
    mujoco.mj_step1(physics.model.ptr, physics.data.ptr)
    for name, value in state["attributes"].items():
        setattr(inner.task, name, value)
    inner.task.random.set_state(state["random"])
    inner._step_count, inner._reset_next_step = state["step_count"], state["reset_next_step"]


def _check_version(saved: str, installed: str) -> None:
    if saved != installed:
        raise ValueError(f"the snapshot was taken with mujoco {saved}, installed is {installed}: pip install mujoco=={saved}")


BUILT_IN = (
    _attributes(_is(TimeLimit), "_elapsed_steps"),
    _attributes(_is(OrderEnforcing), "_has_reset"),
    _attributes(_is(*STATELESS)),
    _attributes(_lives_in(CLASSIC_ROOM), *CLASSIC_STATE),
    Adapter(_lives_in(MUJOCO_ROOM), _get_mujoco, _set_mujoco),
    Adapter(_is(DmControlEnv), _get_dm_control, _set_dm_control),
)
