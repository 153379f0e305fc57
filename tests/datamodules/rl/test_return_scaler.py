import numpy as np
import pytest
import torch

from datamodules.rl.return_scaler import ReturnScaler, discount_of


def counted(scaler: ReturnScaler, rewards: np.ndarray, done: np.ndarray) -> ReturnScaler:
    for reward, over in zip(rewards, done, strict=True):
        scaler.update(torch.from_numpy(reward), torch.from_numpy(over))
    scaler.merge_ranks()
    return scaler


def experience(steps: int, envs: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    g = np.random.default_rng(seed)
    return g.normal(size=(steps, envs)).astype(np.float32), g.random((steps, envs)) < 0.1


def running_returns(rewards: np.ndarray, done: np.ndarray, discount: float) -> np.ndarray:
    found, G = [], np.zeros(rewards.shape[1])
    for reward, over in zip(rewards.astype(np.float64), done, strict=True):
        G = discount * (1 - over) * G + reward
        found.append(G)
    return np.array(found)


def test_the_scale_is_that_of_the_running_returns():
    rewards, done = experience(300, 3)
    G = running_returns(rewards, done, 0.9)
    scaler = counted(ReturnScaler(3, 0.9), rewards, done)
    assert scaler.scale == pytest.approx(max(G.std(), np.abs(G).max() / 5), rel=1e-7)
    assert counted(ReturnScaler(3, 0.9, bound=1e9), rewards, done).scale == pytest.approx(G.std(), rel=1e-7)
    assert counted(ReturnScaler(3, 0.9, bound=1e-9), rewards, done).scale == pytest.approx(1e9 * np.abs(G).max(), rel=1e-9)


def test_constant_rewards_give_returns_within_the_bound():
    scaler = counted(ReturnScaler(1, 0.99), np.ones((5_000, 1)), np.zeros((5_000, 1), dtype=bool))
    assert 1 / scaler.scale / (1 - 0.99) <= 5 * (1 + 1e-6)


def test_one_huge_reward_stays_within_the_bound():
    rewards, done = experience(1_000, 1)
    rewards[500] = 1e4
    scaler = counted(ReturnScaler(1, 0.99), rewards, done)
    scaled = running_returns(rewards, done, 0.99) / scaler.scale
    assert np.abs(scaled).max() == pytest.approx(5.0)
    assert scaler(torch.tensor([1e4])).item() <= 5.1


def test_a_step_that_ends_an_episode_forgets_those_before():
    scaler = ReturnScaler(2, 0.5)
    for reward, done in (([4.0, 4.0], [False, False]), ([1.0, 1.0], [True, False]), ([1.0, 1.0], [False, False])):
        scaler.update(torch.tensor(reward), torch.tensor(done))
    assert scaler.returns.tolist() == [1.5, 2.5]


def test_rewards_stay_as_they_are_before_the_first_merge():
    scaler = ReturnScaler(1, 0.9)
    scaler.update(torch.tensor([100.0]), torch.tensor([False]))
    assert scaler(torch.tensor([3.0])).tolist() == [3.0]
    scaler.merge_ranks()
    assert scaler(torch.tensor([100.0])).tolist() == pytest.approx([5.0])


def test_merging_late_or_often_makes_no_difference():
    rewards, done = experience(200, 2)
    often = ReturnScaler(2, 0.9)
    for step in range(0, 200, 7):
        counted(often, rewards[step : step + 7], done[step : step + 7])
    assert often.scale == pytest.approx(counted(ReturnScaler(2, 0.9), rewards, done).scale, rel=1e-10)


def test_two_ranks_share_one_scale(monkeypatch: pytest.MonkeyPatch):
    rewards, done = experience(200, 2)
    pooled = counted(ReturnScaler(2, 0.9), rewards, done)
    ranks = [ReturnScaler(1, 0.9), ReturnScaler(1, 0.9)]
    for env, scaler in enumerate(ranks):
        for reward, over in zip(rewards[:, env : env + 1], done[:, env : env + 1], strict=True):
            scaler.update(torch.from_numpy(reward), torch.from_numpy(over))
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 2)
    parts = [(scaler.unmerged.state_dict(), scaler._unmerged_greatest) for scaler in ranks]
    monkeypatch.setattr("torch.distributed.all_gather_object", lambda received, part: received.__setitem__(slice(None), parts))
    for scaler in ranks:
        scaler.merge_ranks()
    assert ranks[0].scale == ranks[1].scale == pytest.approx(pooled.scale, rel=1e-10)
    assert ranks[0].unmerged.count == 0


def test_a_restored_scaler_goes_on():
    rewards, done = experience(60, 2)
    one = counted(ReturnScaler(2, 0.9), rewards[:30], done[:30])
    one.update(torch.from_numpy(rewards[30]), torch.from_numpy(done[30]))
    other = ReturnScaler(2, 0.9)
    other.load_state_dict(one.state_dict())
    other.load_rank_state_dict(one.rank_state_dict())
    assert other.scale == one.scale != 1.0
    assert counted(other, rewards[31:], done[31:]).scale == counted(one, rewards[31:], done[31:]).scale
    with pytest.raises(ValueError, match="of 2 environments, now there are 3"):
        ReturnScaler(3, 0.9).load_rank_state_dict(one.rank_state_dict())


@pytest.mark.parametrize(
    ("limit", "repeat", "discount"),
    [(500, 1, 0.99), (1000, 2, 0.99), (1000, 1, 0.995), (50, 1, 0.95), (9999, 1, 0.995), (200, 1, 0.975)],
)
def test_discounts_fit_to_episodes(limit: int, repeat: int, discount: float):
    assert discount_of(limit, repeat) == pytest.approx(discount)
