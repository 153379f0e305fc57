import pytest
import torch
from scipy.stats import chisquare

from datamodules.rl.sum_tree import CumulativeSum, SumTree

CAPACITIES = [1, 2, 31, 32, 33, 1000, 1024, 1025, 40_000]


def uniform(draws: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(draws, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def filled(kind: type[CumulativeSum], priorities: torch.Tensor) -> CumulativeSum:
    made = kind(len(priorities))
    made.set(torch.arange(len(priorities)), priorities.double())
    return made


@pytest.mark.parametrize("kind", [CumulativeSum, SumTree])
def test_by_hand(kind: type[CumulativeSum]):
    made = filled(kind, torch.tensor([1.0, 0.0, 1.0, 2.0, 0.0]))
    index, probability = made.draw(torch.tensor([0.0, 0.2499, 0.25, 0.4999, 0.5, 0.9999], dtype=torch.float64))
    assert index.tolist() == [0, 0, 2, 2, 3, 3]
    assert probability.tolist() == [0.25, 0.25, 0.25, 0.25, 0.5, 0.5]


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_both_draw_the_same(capacity: int):
    g = torch.Generator().manual_seed(capacity)
    priorities = torch.randint(0, 5, (capacity,), generator=g)  # whole numbers: sums are exact in any order
    priorities[capacity // 2] = 3
    u = torch.cat([uniform(5_000), torch.tensor([0.0, 1.0 - 2.0**-53], dtype=torch.float64)])
    one, other = (filled(kind, priorities).draw(u) for kind in (CumulativeSum, SumTree))
    assert one[0].equal(other[0])
    assert one[1].equal(other[1])
    assert (priorities[one[0]] > 0).all()


@pytest.mark.parametrize("kind", [CumulativeSum, SumTree])
def test_frequencies(kind: type[CumulativeSum]):
    g = torch.Generator().manual_seed(3)
    made = kind(3_000)  # mostly empty
    held = torch.randperm(3_000, generator=g)[:200]
    priorities = torch.rand(200, generator=g, dtype=torch.float64) + 0.05
    made.set(held, torch.ones(200, dtype=torch.float64))
    made.set(held, priorities)
    counts = made.draw(uniform(200_000))[0].bincount(minlength=3_000)
    assert counts.sum() == counts[held].sum() == 200_000
    assert chisquare(counts[held], 200_000 * priorities / priorities.sum()).pvalue > 1e-3


def test_a_rest_as_large_as_the_sum_stays_inside():
    # b + s is rounded up to c; the float below c minus b is rounded up to s itself, where no cumulative sum is above it
    b, s = 0.25 + 6 * 2.0**-52, 7.125
    u = 1.0 - 2.0**-53
    assert u * (b + s) < b + s
    assert u * (b + s) - b == s
    tree = SumTree(100)
    tree.set(torch.tensor([0, 40]), torch.tensor([b, s], dtype=torch.float64))
    assert tree.draw(torch.tensor([u], dtype=torch.float64))[0].tolist() == [40]


@pytest.mark.parametrize("seed", range(100))
def test_rounding_never_leads_to_an_empty_item(seed: int):
    # draws at, just below and just above every boundary between two groups, where the rest is all or nothing of a group
    g = torch.Generator().manual_seed(seed)
    tree = SumTree(1_200)
    held = torch.arange(0, 1_100, 7)
    tree.set(held, torch.rand(len(held), generator=g, dtype=torch.float64).pow(1 + seed % 10) + 1e-12)
    boundaries = tree._levels[1][0].cumsum(0) / tree._levels[-1].cumsum(1)[0, -1]
    around = boundaries[:, None] + 2.0**-53 * torch.arange(-6, 7)
    index, probability = tree.draw(around[(around >= 0) & (around < 1)])
    assert (index < 1_200).all()
    assert (tree.priorities[index] > 0).all()
    assert (probability > 0).all()


def test_a_tree_that_grew_is_the_tree_that_is_built_at_once():
    g = torch.Generator().manual_seed(0)
    grown = SumTree(4_000)
    for count in [1, 17, 1, 2] * 200:  # one row alone may be summed in another order than one of many
        index = torch.randint(4_000, (count,), generator=g)
        grown.set(index, torch.rand(count, generator=g, dtype=torch.float64).pow(5) + 1e-9)
    built = filled(SumTree, grown.priorities)
    for one, other in zip(grown._levels, built._levels, strict=True):
        assert one.equal(other)


@pytest.mark.parametrize("kind", [CumulativeSum, SumTree])
def test_of_several_priorities_for_one_item_the_largest_holds(kind: type[CumulativeSum]):
    made = filled(kind, torch.full((40,), 9.0))
    made.set(torch.tensor([3, 35, 3, 3, 35]), torch.tensor([2.0, 1.0, 4.0, 3.0, 0.5], dtype=torch.float64))
    assert made.priorities[[3, 35]].tolist() == [4.0, 1.0]
    assert made.draw(torch.zeros(1, dtype=torch.float64))[1].item() == pytest.approx(9 / (38 * 9 + 5))
