import pytest
import torch

from datamodules.rl.replay import ReplayBuffer
from lightning_modules.r2r2.td7 import clipped_value_target, lap_huber, lap_priority, smoothed_action


def test_the_loss_is_a_square_near_zero_and_a_line_beyond():
    # two critics, one transition: 0.5 * 0.5^2 + 2
    assert lap_huber(torch.tensor([[0.5], [2.0]])).item() == pytest.approx(2.125)
    # two transitions: the mean over them, the sum over critics
    assert lap_huber(torch.tensor([[0.5, 0.0], [2.0, 0.0]])).item() == pytest.approx(2.125 / 2)
    assert lap_huber(torch.tensor([[3.0]]), min_priority=4.0).item() == pytest.approx(4.5)


def test_the_largest_error_decides_the_priority():
    priority = lap_priority(torch.tensor([[0.5, 0.1], [2.0, 0.3]]))
    assert priority.tolist() == pytest.approx([2**0.4, 1.0])
    assert priority[0].item() == pytest.approx(1.3195, abs=1e-4)


def test_transitions_are_drawn_in_proportion_to_priorities():
    replay = ReplayBuffer(3, [1], 1, prioritised=True)
    one = torch.zeros(3, 1)
    flags = {"reward": torch.zeros(3), "terminated": torch.zeros(3, dtype=bool), "truncated": torch.zeros(3, dtype=bool)}
    replay.add({"obs": one, "action": one, "next_obs": one, **flags})
    errors = torch.tensor([[0.1, 1.0, 2.0**2.5]])  # of priorities 1, 1 and 2
    replay.update_priorities(torch.arange(3), lap_priority(errors))
    draws = 20_000
    observed = torch.cat([replay.sample(2)["index"] for _ in range(draws // 2)]).bincount(minlength=3)
    expected = torch.tensor([0.25, 0.25, 0.5]) * draws
    chi_square = float(((observed - expected) ** 2 / expected).sum())
    assert chi_square < 13.8  # 0.1 % quantile of 2 degrees of freedom


def test_only_terminal_states_cut_the_bootstrap_and_values_are_clipped():
    reward, terminated = torch.tensor([1.0, 1.0, 1.0]), torch.tensor([False, True, False])
    value_JB = torch.tensor([[2.0, 2.0, 9.0], [3.0, 3.0, 9.0]])
    low, high = torch.tensor(0.0), torch.tensor(5.0)
    target = clipped_value_target(reward, terminated, value_JB, low, high, discount=0.9)
    assert target.tolist() == pytest.approx([1 + 0.9 * 2, 1.0, 1 + 0.9 * 5])
    nothing_known = clipped_value_target(reward, terminated, value_JB, low, low, discount=0.9)
    assert torch.equal(nothing_known, reward)


def test_noise_on_actions_is_clipped_and_leaves_them_in_bounds():
    torch.manual_seed(0)
    action = torch.full((10_000, 1), 0.2)
    moved = smoothed_action(action, noise=1.0, noise_clip=0.5) - action
    assert moved.min() == pytest.approx(-0.5)
    assert moved.max() == pytest.approx(0.5)
    small = smoothed_action(action, noise=0.1, noise_clip=0.5)
    assert small.std() == pytest.approx(0.1, rel=0.05)
    assert smoothed_action(torch.ones(1000, 1), 0.2, 0.5).max() == 1
