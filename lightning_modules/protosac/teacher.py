"""The actor of a finished SAC run, as the teacher of a distillation (plain torch)."""

import re
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from lightning_modules.finished_runs import find_checkpoint
from lightning_modules.rl.squashed_gaussian import GaussianActor

RANDOM = "random"
_WEIGHT = re.compile(r"actor\.network\.\d+\.weight")


def load_teacher(teacher: str, obs_dim: int, action_dim: int, hidden: Sequence[int] = (256, 256)) -> GaussianActor:
    """Return a frozen SAC actor.

    Args:
        teacher: a checkpoint of a SAC run, or the folder of a run or of several, see
            :func:`~lightning_modules.finished_runs.find_checkpoint`; ``random``: an untrained actor.
        obs_dim: length of an observation.
        action_dim: length of an action.
        hidden: widths of the hidden layers of an untrained actor; a checkpoint knows its own.

    Raises:
        FileNotFoundError: if there is no such checkpoint.
        ValueError: if it holds no SAC actor, one of another environment, or one of normalised observations.
    """
    if teacher == RANDOM:
        return GaussianActor(obs_dim, action_dim, hidden).requires_grad_(False)
    path = find_checkpoint(Path(teacher), "teacher", "configs/sac")
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    if checkpoint.get("RLDataModule", {}).get("normaliser"):
        raise ValueError(f"teacher: {path} acts on normalised observations; give a run without data.normalise_observations")
    weights: dict[str, Tensor] = checkpoint["state_dict"]
    layers = [value for name, value in weights.items() if _WEIGHT.fullmatch(name)]
    if not layers:
        raise ValueError(f"teacher: {path} holds no actor of SAC; give a run of configs/sac")
    found = (layers[0].shape[1], len(layers[-1]) // 2)
    if found != (obs_dim, action_dim):
        raise ValueError(
            f"teacher: {path} acts on {found[0]} observations with {found[1]} actions, the environment has {obs_dim} and "
            f"{action_dim}: give a run of the same environment"
        )
    actor = GaussianActor(obs_dim, action_dim, [len(layer) for layer in layers[:-1]])
    actor.load_state_dict({name.removeprefix("actor."): value for name, value in weights.items() if name.startswith("actor.")})
    return actor.requires_grad_(False)
