"""Environments whose transitions are known by heart."""

import gymnasium as gym
import numpy as np


class Counter(gym.Env):
    """Shows (seed, episode, step); an episode has 3 + seed % 3 steps, the odd ones end by themselves, the others by the clock."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = gym.spaces.Box(np.float32([-2, 0]), np.float32([2, 10]), (2,), np.float32)

    def __init__(self):
        self.seed, self.episode, self.count = 0, 0, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode += 1
        if seed is not None:
            self.seed, self.episode = seed, 1
        self.count = 0
        return self.observe(), {}

    def step(self, action):
        self.action, self.count = action, self.count + 1
        over = self.count == 3 + self.seed % 3
        return self.observe(), float(self.count), over and self.episode % 2 == 1, over and self.episode % 2 == 0, {}

    def observe(self):
        return np.array([self.seed, self.episode, self.count], dtype=np.float64)
