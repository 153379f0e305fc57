"""Acting in vectorised environments and remembering what happened."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from torch import Tensor

from datamodules.rl.environments import next_observations
from datamodules.rl.replay import ReplayBuffer
from datamodules.rl.return_scaler import ReturnScaler

Act = Callable[[Tensor], Tensor]


class Collector:
    """Step environments that reset themselves, and write every transition to a replay.

    Args:
        envs: vectorised environments, actions in [-1, 1].
        replay: receives the transitions.
        scaler: receives the rewards, if given.

    Attributes:
        decisions: actions taken so far, in all environments together.
        finished: returns of the episodes that ended, oldest first, until somebody takes them.
        ended: returns and lengths of the episodes that ended since somebody cleared them.
    """

    def __init__(self, envs: VectorEnv, replay: ReplayBuffer, scaler: ReturnScaler | None = None) -> None:
        self.envs, self.replay, self.scaler = envs, replay, scaler
        self.decisions = 0
        self.finished: list[float] = []
        self.ended: list[tuple[float, int]] = []
        self._obs, _ = envs.reset()
        self._returns, self._lengths = np.zeros(envs.num_envs), np.zeros(envs.num_envs, dtype=np.int64)

    @property
    def obs(self) -> Tensor:
        """What the environments show now, ``[envs, obs]``."""
        return torch.from_numpy(self._obs)

    def step(self, act: Act | None, device: torch.device) -> None:
        """Take one action in every environment: that of the policy ``act``, or a random one without a policy."""
        if act is None:
            action = self.envs.action_space.sample()
        else:
            with torch.inference_mode():
                action = act(self.obs.to(device)).cpu().numpy()
        obs, reward, terminated, truncated, infos = self.envs.step(action)
        self.replay.add(
            {
                "obs": self._obs,
                "action": action,
                "reward": reward.astype(np.float32),
                "next_obs": next_observations(obs, infos),
                "terminated": terminated,
                "truncated": truncated,
            }
        )
        self.decisions += len(reward)
        self._returns += reward
        self._lengths += 1
        ended = terminated | truncated
        if self.scaler:
            self.scaler.update(torch.from_numpy(reward), torch.from_numpy(ended))
        returns, lengths = self._returns[ended].tolist(), self._lengths[ended].tolist()
        self.finished += returns
        self.ended += zip(returns, lengths, strict=True)
        self._returns[ended], self._lengths[ended] = 0.0, 0
        self._obs = obs.copy()

    def state_dict(self) -> dict[str, Any]:
        """Return where the episodes stand; environments and replay are saved by themselves."""
        return {
            "decisions": self.decisions,
            "finished": list(self.finished),
            "ended": [list(episode) for episode in self.ended],
            "obs": torch.from_numpy(self._obs.copy()),
            "returns": torch.from_numpy(self._returns.copy()),
            "lengths": torch.from_numpy(self._lengths.copy()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.decisions, self.finished = state["decisions"], list(state["finished"])
        self.ended = [(value, length) for value, length in state["ended"]]
        self._obs, self._returns, self._lengths = (state[name].numpy().copy() for name in ("obs", "returns", "lengths"))

    def begin_anew(self, seed: int) -> None:
        """Reset all environments to episodes that belong to this seed and to the decisions taken so far."""
        seeds = np.random.SeedSequence([seed, self.decisions]).generate_state(self.envs.num_envs).tolist()
        self.envs.action_space.seed(seeds[0])
        self._obs, _ = self.envs.reset(seed=seeds)
        self._returns[:], self._lengths[:] = 0.0, 0
