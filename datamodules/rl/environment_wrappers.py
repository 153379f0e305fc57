"""Wrappers that Gymnasium lacks."""

from typing import Any

import gymnasium as gym
import numpy as np


class ActionRepeat(gym.Wrapper):
    """Applies every action several times, adds the rewards, and stops where the episode ends.

    Raises:
        ValueError: if ``times`` is not positive.
    """

    def __init__(self, env: gym.Env, times: int) -> None:
        if times < 1:
            raise ValueError(f"action_repeat={times} must be 1 or more")
        super().__init__(env)
        self.times = times

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Return the last observation and the sum of rewards."""
        total = 0.0
        for _ in range(self.times):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info


class Float32Observation(gym.ObservationWrapper):
    """Casts a box of any type to float32; Gymnasium's own DtypeObservation warns twice about every float64 environment."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        box = env.observation_space
        assert isinstance(box, gym.spaces.Box)
        with np.errstate(over="ignore"):
            self.observation_space = gym.spaces.Box(box.low.astype(np.float32), box.high.astype(np.float32), box.shape, np.float32)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        """Cast one observation."""
        return observation.astype(np.float32)
