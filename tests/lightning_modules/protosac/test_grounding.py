from itertools import permutations

import pytest
import torch
from scipy.optimize import linear_sum_assignment
from torch import nn

from lightning_modules.protosac import grounding
from lightning_modules.protosac.grounding import (
    assign,
    distances_to,
    distinct_rows,
    farthest_candidates,
    greedy_assignment,
    kmeans_plus_plus,
    reset_adam_rows,
    spread_actions,
)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rand(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=generator(seed))


@pytest.mark.parametrize("seed", range(10))
def test_assignment_equals_brute_force(seed):
    cost = rand(4, 6, seed=seed)
    best = min(permutations(range(6), 4), key=lambda p: sum(cost[k, n].item() for k, n in enumerate(p)))
    assert assign(cost).tolist() == list(best)


def test_assignment_is_not_nearest_neighbour():
    # both prototypes prefer candidate 0; giving it to the first costs 1 + 2, to the second 5 + 1.5
    assert assign(torch.tensor([[1.0, 5.0], [1.5, 2.0]])).tolist() == [0, 1]


def greedy_by_hand(cost: torch.Tensor) -> list[int]:
    cost, chosen = cost.clone(), [-1] * len(cost)
    for _ in range(len(cost)):
        k, n = divmod(int(cost.argmin()), cost.shape[1])
        chosen[k] = n
        cost[k, :] = torch.inf
        cost[:, n] = torch.inf
    return chosen


@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (8, 12), (20, 200)])
def test_greedy_takes_the_cheapest_free_pair(shape):
    for seed in range(5):
        cost = rand(*shape, seed=seed)
        before = cost.clone()
        assert greedy_assignment(cost).tolist() == greedy_by_hand(cost)
        assert torch.equal(cost, before)


def test_large_problems_are_greedy(monkeypatch):
    cost = torch.tensor([[1.0, 1.1], [1.2, 5.0]])
    assert assign(cost).tolist() == [1, 0]
    monkeypatch.setattr(grounding, "EXACT_LIMIT", 3)
    assert assign(cost).tolist() == [0, 1]


def test_too_few_candidates():
    with pytest.raises(ValueError, match="3 prototypes cannot share 2 candidates"):
        assign(torch.rand(3, 2))


def test_missing_scipy_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "scipy.optimize", None)
    with pytest.raises(ImportError, match=r"leyden\[rl\]"):
        assign(torch.rand(2, 3))


def test_distances():
    P, Z = rand(3, 4), rand(50, 4, seed=1)
    torch.testing.assert_close(distances_to(P, Z), (P[:, None] - Z).square().sum(-1))
    assert distances_to(Z, Z).diagonal().abs().max() == 0


def test_distinct_rows_are_the_first_of_their_kind():
    states = torch.tensor([[2.0, 1.0], [0.0, 0.0], [2.0, 1.0], [-0.0, 0.0], [1.0, 2.0]])
    assert distinct_rows(states).tolist() == [0, 1, 4]
    assert distinct_rows(states.reshape(5, 1, 2, 1)).tolist() == [0, 1, 4]


def test_kmeans_plus_plus_visits_every_cluster():
    centres = 100 * torch.eye(5)
    Z = (centres[:, None] + 0.01 * rand(5, 20, 5)).flatten(0, 1)
    for seed in range(10):
        assert sorted((kmeans_plus_plus(Z, 5, generator(seed)) // 20).tolist()) == [0, 1, 2, 3, 4]


def test_kmeans_plus_plus_chooses_by_squared_distance():
    # from 0: squared distances 1 and 9, so the far point comes second nine times in ten
    Z = torch.tensor([[0.0], [1.0], [3.0]])
    draws = [kmeans_plus_plus(Z, 2, generator(seed)).tolist() for seed in range(2000)]
    firsts = torch.tensor([first for first, _ in draws]).bincount(minlength=3) / 2000
    assert firsts.tolist() == pytest.approx([1 / 3] * 3, abs=0.04)
    seconds = [second for first, second in draws if first == 0]
    assert sum(second == 2 for second in seconds) / len(seconds) == pytest.approx(0.9, abs=0.04)


def test_kmeans_plus_plus_never_repeats_even_where_points_coincide():
    Z = torch.tensor([[0.0], [0.0], [0.0], [1.0]])
    for seed in range(20):
        assert sorted(kmeans_plus_plus(Z, 4, generator(seed)).tolist()) == [0, 1, 2, 3]


def test_farthest_candidates_by_hand():
    P = torch.tensor([[0.0], [10.0]])
    Z = torch.tensor([[1.0], [4.0], [16.0], [15.0], [-5.5]])
    # 16 is 6 from 10; then 15 is only 1 away, -5.5 is 5.5 from 0; then 4
    chosen, nearest = farthest_candidates(P, Z, 3)
    assert chosen.tolist() == [2, 4, 1]
    assert nearest.tolist() == [1, 0, 0]
    assert farthest_candidates(P, Z, 0)[0].tolist() == []


def test_actions_are_spread():
    torch.testing.assert_close(spread_actions(5, 1).tanh(), torch.tensor([[-0.8], [-0.4], [0.0], [0.4], [0.8]]))
    assert spread_actions(1, 1).tolist() == [[0.0]]
    several = spread_actions(2000, 3, generator()).tanh()
    assert several.abs().max() <= 0.8 + 1e-6
    assert several.std(dim=0).tolist() == pytest.approx([1.6 / 12**0.5] * 3, rel=0.05)


@pytest.mark.parametrize("amsgrad", [False, True])
def test_adam_forgets_some_rows_only(amsgrad):
    P, other = nn.Parameter(rand(4, 3)), nn.Parameter(rand(4, 3, seed=1))
    optimizer = torch.optim.Adam([P, other], amsgrad=amsgrad)
    for _ in range(3):
        optimizer.zero_grad()
        (P.square().sum() + other.square().sum()).backward()
        optimizer.step()
    before = {name: value.clone() for name, value in optimizer.state[P].items()}
    others = {name: value.clone() for name, value in optimizer.state[other].items()}
    rows = torch.tensor([True, False, True, False])
    reset_adam_rows(optimizer, P, rows)
    moments = [name for name, value in optimizer.state[P].items() if value.shape == P.shape]
    assert {"exp_avg", "exp_avg_sq"} <= set(moments)
    assert len(moments) == 2 + amsgrad
    for name in moments:
        assert (optimizer.state[P][name][rows] == 0).all()
        assert torch.equal(optimizer.state[P][name][~rows], before[name][~rows])
        assert (before[name] != 0).all()
    assert optimizer.state[P]["step"] == 3
    assert all(torch.equal(optimizer.state[other][name], value) for name, value in others.items())


def test_fresh_optimizers_have_nothing_to_forget_and_strangers_are_refused():
    P = nn.Parameter(rand(4, 3))
    fresh = torch.optim.Adam([P])
    reset_adam_rows(fresh, P, torch.ones(4, dtype=torch.bool))
    assert not fresh.state
    with pytest.raises(ValueError, match="does not train"):
        reset_adam_rows(torch.optim.Adam([nn.Parameter(rand(2))]), P, torch.ones(4, dtype=torch.bool))


def test_fallback_is_near_the_optimum():
    cost = rand(30, 400)
    rows, columns = linear_sum_assignment(cost.numpy())
    optimum = cost[rows, columns].sum()
    greedy = cost[torch.arange(30), greedy_assignment(cost)].sum()
    assert optimum <= greedy <= 1.5 * optimum
