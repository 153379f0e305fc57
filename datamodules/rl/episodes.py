"""Evaluation episodes, several side by side."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

Act = Callable[[Tensor], Tensor]


class EpisodeOutcomes(NamedTuple):
    """How episodes went.

    Attributes:
        returns: undiscounted sums of rewards, float32 ``[episodes]``.
        lengths: decisions, int64 ``[episodes]``.
    """

    returns: Tensor
    lengths: Tensor


@torch.inference_mode()
def play_episodes(envs: Sequence[gym.Env], act: Act, seeds: Sequence[int], device: torch.device) -> EpisodeOutcomes:
    """Play one episode in each environment, all in step, those that have ended left out.

    Args:
        envs: environments with flat observations, which are reset here.
        act: policy, observations ``[playing, obs]`` to actions ``[playing, m]``.
        seeds: of the episodes.
        device: where the policy expects observations.
    """
    obs = np.stack([env.reset(seed=seed)[0] for env, seed in zip(envs, seeds, strict=True)])
    returns, lengths = torch.zeros(len(envs), dtype=torch.float64), torch.zeros(len(envs), dtype=torch.int64)
    playing = list(range(len(envs)))
    while playing:
        actions = act(torch.from_numpy(obs[playing]).to(device)).cpu().numpy()
        going_on = []
        for index, action in zip(playing, actions, strict=True):
            obs[index], reward, terminated, truncated, _ = envs[index].step(action)
            returns[index] += float(reward)
            lengths[index] += 1
            if not (terminated or truncated):
                going_on.append(index)
        playing = going_on
    return EpisodeOutcomes(returns.float(), lengths)
