"""The exact state of an environment in the middle of an episode, as tensors, numbers, strings and bytes.

Pickling or copying a Gymnasium MuJoCo environment rebuilds it from its constructor's arguments and silently loses its state. A
snapshot holds the state instead, for an environment that :func:`datamodules.rl.environments.make_env` has built anew with the
same arguments. Nothing in it is unpickled: ``torch.load(..., weights_only=True)`` reads it, and MuJoCo's own bytes go to MuJoCo's
own reader.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import SyncVectorEnv, VectorEnv

from datamodules.rl.snapshot_adapters import BUILT_IN, Adapter

Snapshot = dict[str, Any]

VECTOR_ARRAYS = ("_observations", "_rewards", "_terminations", "_truncations", "_autoreset_envs")

_registered: list[Adapter] = []


class _Layer(NamedTuple):
    name: str
    env: gym.Env
    adapter: Adapter | None


def register_snapshot(
    predicate: Callable[[gym.Env], bool], get: Callable[[Any], dict[str, Any]], set: Callable[[Any, dict[str, Any]], None]
) -> None:
    """Make a base environment or a wrapper known; the last registered comes first, before the built-in ones.

    The base environment's ``np_random`` and the action space's random numbers are kept for all.

    Args:
        predicate: whether this pair of functions is for a given environment or wrapper; it sees one layer at a time.
        get: returns the layer's own state: arrays, tensors, numbers, strings, bytes, None, and lists and dictionaries of them.
        set: gives it to another object; tensors arrive as arrays.
    """
    _registered.insert(0, Adapter(predicate, get, set))


def supports(env: gym.Env | VectorEnv) -> bool:
    """Tell whether a snapshot of ``env`` would be exact: every wrapper and the base environment are known.

    Known are this project's wrappers, Gymnasium's own MuJoCo and classic control environments, the DeepMind control suite, what was
    registered, and ``SyncVectorEnv`` of these. A class derived from a known one may hold more state and is unknown.
    """
    if isinstance(env, SyncVectorEnv):
        return all(supports(single) for single in env.envs)
    return isinstance(env, gym.Env) and all(layer.adapter for layer in _layers(env))


def get_snapshot(env: gym.Env | VectorEnv) -> Snapshot:
    """Return the state of one environment, or of a ``SyncVectorEnv`` with all that is in it; the environment is not changed.

    Raises:
        TypeError: if the environment is unsupported, or a registered function returns what a checkpoint cannot hold.
    """
    _refuse_unsupported(env)
    if isinstance(env, SyncVectorEnv):
        return {
            "environments": [get_snapshot(single) for single in env.envs],
            "latest": _encode(list(env._env_obs)),
            "arrays": _encode({name: getattr(env, name) for name in VECTOR_ARRAYS}),
            "action_space": _encode(env.action_space.np_random.bit_generator.state),
        }
    assert isinstance(env, gym.Env)
    layers = _layers(env)
    return {
        "layers": [layer.name for layer in layers],
        "states": [_encode(layer.adapter.get(layer.env)) for layer in layers if layer.adapter],
        "np_random": _encode(env.unwrapped.np_random.bit_generator.state),
        "action_space": _encode(env.action_space.np_random.bit_generator.state),
    }


def set_snapshot(env: gym.Env | VectorEnv, snapshot: Snapshot) -> None:
    """Continue in ``env``, which needs no reset, where the snapshot was taken.

    Raises:
        TypeError: if the environment is unsupported.
        ValueError: if the snapshot is of another environment or another version of MuJoCo.
    """
    _refuse_unsupported(env)
    if isinstance(env, SyncVectorEnv):
        _set_vector(env, snapshot)
        return
    assert isinstance(env, gym.Env)
    layers = _layers(env)
    names = [layer.name for layer in layers]
    if snapshot.get("layers") != names:
        raise ValueError(
            f"the snapshot is of {' of '.join(snapshot.get('layers', ['a vector']))}, not of {' of '.join(names)}: "
            "build the environment as it was, or begin a new run"
        )
    for layer, state in zip(layers, snapshot["states"], strict=True):
        if layer.adapter:
            layer.adapter.set(layer.env, _decode(state))
    env.unwrapped.np_random.bit_generator.state = _decode(snapshot["np_random"])
    env.action_space.np_random.bit_generator.state = _decode(snapshot["action_space"])


def _set_vector(env: SyncVectorEnv, snapshot: Snapshot) -> None:
    saved = snapshot.get("environments", [])
    if len(saved) != env.num_envs:
        raise ValueError(f"the snapshot is of {len(saved)} environments, there are {env.num_envs}: set num_envs={len(saved)}")
    for single, state in zip(env.envs, saved, strict=True):
        set_snapshot(single, state)
    env._env_obs = _decode(snapshot["latest"])
    for name, array in _decode(snapshot["arrays"]).items():
        setattr(env, name, array)
    env.action_space.np_random.bit_generator.state = _decode(snapshot["action_space"])


def _layers(env: gym.Env) -> list[_Layer]:
    """Return the environment's wrappers from the outside, then the base."""
    layers = [env]
    while isinstance(layers[-1], gym.Wrapper):
        layers.append(layers[-1].env)
    return [_Layer(type(layer).__qualname__, layer, _adapter(layer)) for layer in layers]


def _adapter(layer: gym.Env) -> Adapter | None:
    return next((adapter for adapter in (*_registered, *BUILT_IN) if adapter.predicate(layer)), None)


def _refuse_unsupported(env: gym.Env | VectorEnv) -> None:
    if supports(env):
        return
    unknown = [layer.name for layer in _layers(env) if not layer.adapter] if isinstance(env, gym.Env) else [type(env).__name__]
    raise TypeError(f"no snapshot of {env} is possible, unknown is {', '.join(unknown)}: see register_snapshot")


def _encode(value: Any) -> Any:
    """Turn arrays into tensors of their own memory."""
    if isinstance(value, dict):
        return {key: _encode(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encode(part) for part in value]
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return value
    raise TypeError(f"a snapshot holds arrays, numbers, strings and bytes, not {type(value).__name__}")


def _decode(value: Any) -> Any:
    """Turn tensors into arrays of their own memory."""
    if isinstance(value, dict):
        return {key: _decode(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_decode(part) for part in value]
    return value.cpu().numpy().copy() if isinstance(value, torch.Tensor) else value
