import numpy as np
import pytest

from datamodules.graphs.graph_arrays import GraphArrays, Masks
from datamodules.graphs.splits import choose_split, random_split


def masks(*members: list[int], nodes: int = 6) -> Masks:
    stack = np.zeros((3, nodes), dtype=bool)
    for mask, chosen in zip(stack, members, strict=True):
        mask[chosen] = True
    return Masks(*stack)


def graph(*splits: Masks, public: Masks | None = None, nodes: int = 6) -> GraphArrays:
    return GraphArrays(np.zeros((nodes, 1)), np.zeros(nodes, dtype=int), np.zeros((0, 2), dtype=int), 1, splits, public)


def test_numbered_and_public():
    first, second, public = masks([0], [1], [2]), masks([3], [4], [5]), masks([5], [0], [1])
    data = graph(first, second, public=public)
    assert choose_split(data, 0, "mine") is first
    assert choose_split(data, 1, "mine") is second
    assert choose_split(data, "public", "mine") is public


def test_random():
    split = random_split(100, 0.48, 0.32, seed=1)
    assert [int(mask.sum()) for mask in split] == [48, 32, 20]
    assert (np.stack(split).sum(axis=0) == 1).all()
    again, other = random_split(100, 0.48, 0.32, seed=1), random_split(100, 0.48, 0.32, seed=2)
    assert (again.train == split.train).all()
    assert (other.train != split.train).any()
    chosen = choose_split(graph(nodes=100), "random", "mine", 0.48, 0.32, seed=1)
    assert all((one == same).all() for one, same in zip(chosen, split, strict=True))


@pytest.mark.parametrize(
    ("data", "split", "reason"),
    [
        (graph(*[masks([0], [1], [2])] * 10), 10, "split=10 is not a split of texas: use 0 to 9, random$"),
        (graph(*[masks([0], [1], [2])] * 10), -1, "split=-1 is not a split"),
        (graph(*[masks([0], [1], [2])] * 10), "public", "split='public' is not a split of texas: use 0 to 9, random$"),
        (graph(public=masks([0], [1], [2])), 0, "use public, random$"),
        (graph(masks([0, 1], [1], [2])), 0, "train and val masks of split 0 of texas share 1 of 6 nodes"),
        (graph(masks([0, 1], [2], [0, 1])), 0, "train and test masks of split 0 of texas share 2 of 6 nodes"),
        (graph(masks([0], [1, 2], [2])), 0, "val and test masks of split 0 of texas share 1 of 6 nodes"),
        (graph(masks([], [1, 2], [3])), 0, "the train mask of split 0 of texas is empty .*'train': 0, 'val': 2, 'test': 1"),
        (graph(masks([0], [1], [2], nodes=5)), 0, r"the train mask of split 0 of texas is bool \[5\]: expected bool \[6\]"),
    ],
)
def test_bad_splits(data: GraphArrays, split: int | str, reason: str):
    with pytest.raises(ValueError, match=reason):
        choose_split(data, split, "texas")


@pytest.mark.parametrize("fractions", [(0, 0.5), (0.5, 0), (0.6, 0.4), (float("nan"), 0.1)])
def test_bad_fractions(fractions: tuple[float, float]):
    with pytest.raises(ValueError, match="must be positive and leave something for the test"):
        random_split(10, *fractions, seed=0)
