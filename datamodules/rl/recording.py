"""One episode written down step by step, to be looked at."""

from collections.abc import Callable
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

Act = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class EpisodeRecording:
    """What happened in an episode of T decisions.

    Attributes:
        obs: what was observed before each decision, float32 ``[T, n]``.
        actions: what was done, in [-1, 1], float32 ``[T, m]``.
        rewards: what it earned, float32 ``[T]``.
        frames: picture of each observed state, T arrays ``[H, W, 3]`` of bytes; empty if the environment draws none.
    """

    obs: Tensor
    actions: Tensor
    rewards: Tensor
    frames: list[np.ndarray]


def record_episode(env: gym.Env, act: Act, seed: int, device: torch.device | str = "cpu") -> EpisodeRecording:
    """Play one episode and write it down.

    Args:
        env: as :func:`datamodules.rl.environments.make_env` builds it; with ``render_mode="rgb_array"`` its pictures are kept.
        act: policy from an observation ``[1, n]`` to an action ``[1, m]``, without randomness.
        seed: seed of the episode.
        device: where the policy receives observations.
    """
    obs, _ = env.reset(seed=seed)
    seen: list[np.ndarray] = []
    actions: list[np.ndarray] = []
    rewards: list[float] = []
    frames: list[np.ndarray] = []
    ended = False
    while not ended:
        seen.append(obs.copy())
        if env.render_mode == "rgb_array":
            frames.append(np.array(env.render()))
        with torch.inference_mode():
            action = act(torch.from_numpy(seen[-1]).unsqueeze(0).to(device))[0].cpu().numpy()
        obs, reward, terminated, truncated, _ = env.step(action)
        actions.append(action)
        rewards.append(float(reward))
        ended = terminated or truncated
    return EpisodeRecording(
        obs=torch.from_numpy(np.stack(seen)),
        actions=torch.from_numpy(np.stack(actions)),
        rewards=torch.tensor(rewards),
        frames=frames,
    )
