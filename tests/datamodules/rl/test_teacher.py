"""Demonstrations: what they show, how episodes are kept apart, and that they can be played again."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from datamodules.rl.environments import evaluation_seed, make_env
from datamodules.rl.teacher import TeacherDataModule


class Linear:
    """Shows ``tanh(obs @ w)`` and does something random near it."""

    device = torch.device("cpu")
    weights = torch.tensor([[0.3], [-0.5], [0.2]])

    def demonstrate(self, obs: Tensor) -> Tensor:
        return (obs @ self.weights).tanh()

    def explore(self, obs: Tensor) -> Tensor:
        return (self.demonstrate(obs) + 0.3 * torch.randn(len(obs), 1)).clamp(-1, 1)


def pendulum(**options: Any) -> TeacherDataModule:
    return TeacherDataModule(**{"env": "gym:Pendulum-v1", "demonstrations": 100, "time_limit": 20, "batch_size": 8, **options})


def set_up(data: TeacherDataModule, rank: int = 0, world_size: int = 1) -> TeacherDataModule:
    data.trainer = SimpleNamespace(  # type: ignore[assignment]
        lightning_module=Linear(),
        global_rank=rank,
        world_size=world_size,
        overfit_batches=0,
        strategy=SimpleNamespace(root_device=torch.device("cpu")),
    )
    data.setup("fit")
    return data


def test_the_targets_are_the_deterministic_actions_where_exploration_led():
    played = pendulum().play(Linear())
    assert torch.equal(played.action, Linear().demonstrate(played.obs))
    first, explored = played.obs[played.episode == 0], pendulum(demonstrations=1)
    env = make_env("gym:Pendulum-v1")
    obs, _ = env.reset(seed=evaluation_seed(0, explored.first_episode))
    assert torch.equal(first[0], torch.from_numpy(obs))
    followed, *_ = env.step(played.action[0].numpy())
    assert not torch.allclose(first[1], torch.from_numpy(followed), atol=1e-4)


def test_whole_episodes_in_order_until_there_are_enough_states():
    played = pendulum(demonstrations=90).play(Linear())
    assert played.episode.tolist() == [episode for episode in range(5) for _ in range(20)]
    assert pendulum(demonstrations=250).play(Linear()).episode.bincount().tolist() == [20] * 13
    assert pendulum(demonstrations=1).play(Linear()).episode.bincount().tolist() == [20] * 2


def test_episodes_of_different_length_are_told_apart():
    class Falling(Linear):
        weights = torch.tensor([[-1.0], [-1.0], [0.0], [0.0]])
        explore = Linear.demonstrate

    data = TeacherDataModule("gym:InvertedPendulum-v5", demonstrations=150)
    played, env = data.play(Falling()), make_env("gym:InvertedPendulum-v5")
    lengths = played.episode.bincount()
    assert len(lengths.unique()) > 1
    assert int(lengths.sum()) >= 150 > int(lengths[:-1].sum())
    for episode, length in enumerate(lengths.tolist()):
        obs, _ = env.reset(seed=evaluation_seed(0, data.first_episode + episode))
        for step, (shown, action) in enumerate(
            zip(played.obs[played.episode == episode], played.action[played.episode == episode], strict=True)
        ):
            assert torch.equal(shown, torch.from_numpy(obs))
            obs, _, terminated, *_ = env.step(action.numpy())
            assert terminated == (step == length - 1)


def test_no_episode_is_in_both_parts():
    data = set_up(pendulum(demonstrations=180))
    assert data.train_set.episode.bincount().tolist() == [20] * 7
    assert data.val_set.episode.bincount().tolist() == [0] * 7 + [20, 20]
    few = set_up(pendulum(demonstrations=1))
    assert (few.train_set.episode.unique().tolist(), few.val_set.episode.unique().tolist()) == ([0], [1])


def test_a_seed_plays_the_same_again_and_leaves_other_random_numbers_alone():
    torch.manual_seed(1)
    first = pendulum().play(Linear())
    after = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(after, torch.rand(1))
    torch.manual_seed(2)
    again, other = pendulum().play(Linear()), pendulum(seed=1).play(Linear())
    assert torch.equal(first.obs, again.obs)
    assert not torch.equal(first.obs, other.obs)


def test_ranks_share_the_batches_of_one_process():
    whole = list(set_up(pendulum()).train_dataloader())
    halves = [list(set_up(pendulum(), rank, 2).train_dataloader()) for rank in range(2)]
    assert [batch["obs"].shape for batch in whole] == [(8, 3)] * 10
    for batch, first, second in zip(whole, *halves, strict=True):
        for name in ("obs", "action"):
            assert torch.equal(batch[name], torch.stack([first[name], second[name]], dim=1).flatten(0, 1))


def test_the_test_is_that_of_agents():
    data = pendulum(eval_episodes=3, test_episodes=2)
    (episodes,) = data.test_dataloader()
    assert episodes.tolist() == [3, 4]
    outcomes = data.evaluate(Linear().demonstrate, episodes)
    assert torch.equal(outcomes.returns, data.world.evaluate(Linear().demonstrate, episodes).returns)
    assert data.first_episode == 5


def test_no_demonstrations_are_refused():
    with pytest.raises(ValueError, match="demonstrations=0"):
        pendulum(demonstrations=0)
