import gymnasium as gym
import numpy as np
import pytest
import torch

from datamodules.rl.environments import make_env
from datamodules.rl.recording import record_episode


class Countdown(gym.Env):
    """Observes how often it was stepped, pays the action, and ends after three steps."""

    observation_space = gym.spaces.Box(-10, 10, (2,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.steps = np.zeros(2, np.float32)
        self.canvas = np.zeros((4, 5, 3), np.uint8)

    def reset(self, *, seed=None, options=None):
        self.steps[:] = 0, seed
        return self.steps, {}

    def step(self, action):
        self.steps[0] += 1
        self.canvas[:] = self.steps[0]
        return self.steps, float(action[0]), self.steps[0] == 3, False, {}

    def render(self):
        return self.canvas


def act(obs):
    assert obs.shape == (1, 2)
    return obs[:, :1] / 4


def test_every_decision_is_written_down():
    record = record_episode(Countdown("rgb_array"), act, seed=7)
    assert record.obs.tolist() == [[0, 7], [1, 7], [2, 7]]
    assert record.actions.tolist() == [[0.0], [0.25], [0.5]]
    assert record.rewards.tolist() == [0.0, 0.25, 0.5]
    assert [frame[0, 0, 0] for frame in record.frames] == [0, 1, 2]
    assert record.frames[0].shape == (4, 5, 3)
    assert {x.dtype for x in (record.obs, record.actions, record.rewards)} == {torch.float32}


def test_without_pictures():
    assert record_episode(Countdown(), act, seed=7).frames == []


@pytest.mark.parametrize("seed", [1, 2])
def test_the_seed_decides_a_real_episode(seed: int):
    env = make_env("gym:Pendulum-v1", time_limit=5)
    first, again, other = (record_episode(env, lambda obs: obs[:, :1] / 2, s) for s in (seed, seed, seed + 2))
    assert torch.equal(first.obs, again.obs)
    assert not torch.equal(first.obs, other.obs)
    assert first.obs.shape == (5, 3)
    assert torch.equal(first.actions, first.obs[:, :1] / 2)
    torque, angle = 2 * first.actions[:, 0], torch.atan2(first.obs[:, 1], first.obs[:, 0])  # Pendulum-v1's own reward
    assert torch.allclose(first.rewards, -(angle**2 + 0.1 * first.obs[:, 2] ** 2 + 0.001 * torque**2), atol=1e-4)
