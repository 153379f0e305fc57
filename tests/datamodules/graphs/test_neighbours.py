import numpy as np
import pytest
from scipy.stats import chisquare

from datamodules.graphs.neighbours import NeighbourSampler, hashed
from datamodules.graphs.prepare import Edges, prepare_edges

SALTS = np.random.default_rng(7).integers(2**64, size=4000, dtype=np.uint64)


def random_edges(nodes: int = 60, count: int = 400, directed: bool = False, seed: int = 0) -> Edges:
    return prepare_edges(np.random.default_rng(seed).integers(nodes, size=(count, 2)), nodes, directed=directed)


def star(leaves: int) -> Edges:
    return prepare_edges(np.stack([np.arange(1, leaves + 1), np.zeros(leaves, dtype=int)], axis=1), leaves + 1)


@pytest.mark.parametrize("fan_out", [1, 3, 8])
def test_each_node_keeps_at_most_so_many_and_never_an_edge_twice(fan_out: int):
    edges = random_edges()
    degrees = np.bincount(edges.target, minlength=60)
    assert (degrees > fan_out).any()
    positions = NeighbourSampler(edges, 60, [fan_out]).incoming(np.arange(60), fan_out, SALTS[0])
    assert len(np.unique(positions)) == len(positions)
    assert (np.bincount(edges.target[positions], minlength=60) == np.minimum(degrees, fan_out)).all()


@pytest.mark.parametrize("fan_out", [-1, 1000])
def test_all_neighbours(fan_out: int):
    edges = random_edges()
    nodes = np.array([5, 40, 7])
    positions = NeighbourSampler(edges, 60, [fan_out]).incoming(nodes, fan_out, SALTS[0])
    assert sorted(positions) == np.flatnonzero(np.isin(edges.target, nodes)).tolist()


def test_nodes_without_neighbours():
    edges = star(3)
    lonely = NeighbourSampler(edges, 6, [2, 2])
    nodes, positions = lonely.sample(np.array([5, 4]), SALTS[0])
    assert nodes.tolist() == [5, 4]
    assert positions.tolist() == []


def test_drawn_edges_are_edges_of_the_graph():
    edges = random_edges(directed=True)
    edges = Edges(edges.source, edges.target, edges.direction, np.arange(len(edges), dtype=np.float32))
    sampler = NeighbourSampler(edges, 60, [3, 2])
    seeds = np.array([11, 2, 59])
    nodes, drawn = sampler.subgraph(seeds, SALTS[1])
    assert nodes[:3].tolist() == seeds.tolist()
    assert len(np.unique(nodes)) == len(nodes)
    assert len(nodes) > 10
    position = drawn.phase.astype(int)
    assert (edges.source[position] == nodes[drawn.source]).all()
    assert (edges.target[position] == nodes[drawn.target]).all()
    assert (edges.direction[position] == drawn.direction).all()
    assert len(np.unique(position)) == len(position)


def test_hops():
    path = prepare_edges(np.stack([np.arange(9), np.arange(1, 10)], axis=1), 10)
    sample = NeighbourSampler(path, 10, [-1, -1, -1]).sample
    nodes, positions = sample(np.array([4]), SALTS[0])
    assert nodes.tolist() == [4, 3, 5, 2, 6, 1, 7]
    assert sorted(set(path.target[positions])) == [2, 3, 4, 5, 6], "a node of the last hop keeps no incoming edges"


def test_fan_out_belongs_to_its_hop():
    edges = random_edges(40, 600)
    nodes, drawn = NeighbourSampler(edges, 40, [5, 2]).subgraph(np.array([0, 1]), SALTS[2])
    counts = np.bincount(drawn.target, minlength=len(nodes))
    assert counts[:2].tolist() == [5, 5]
    assert set(counts[2:]) <= {0, 2}
    assert (counts[2:] == 2).any()


def test_the_draw_is_uniform():
    leaves, fan_out = 12, 4
    edges = star(leaves)
    sampler = NeighbourSampler(edges, leaves + 1, [fan_out])
    draws = np.stack([edges.source[sampler.incoming(np.array([0]), fan_out, salt)] for salt in SALTS])
    assert chisquare(np.bincount(draws.ravel(), minlength=leaves + 1)[1:]).pvalue > 1e-3
    together = np.array([[(a in draw) and (b in draw) for a, b in ((1, 2), (5, 6), (1, 12))] for draw in draws.tolist()])
    expected = fan_out * (fan_out - 1) / (leaves * (leaves - 1))
    error = np.sqrt(expected * (1 - expected) / len(SALTS))
    assert (np.abs(together.mean(axis=0) - expected) < 4 * error).all(), "pairs are as frequent as without replacement"


def test_two_nodes_draw_independently():
    edges = prepare_edges(np.array([[a, b] for a in (0, 1) for b in range(2, 8)]), 8)
    sampler = NeighbourSampler(edges, 8, [1])
    drawn = np.stack([edges.source[sampler.incoming(np.array([0, 1]), 1, salt)] for salt in SALTS]) - 2
    assert chisquare(np.bincount(drawn[:, 0] * 6 + drawn[:, 1], minlength=36)).pvalue > 1e-3


def test_same_salt_same_draw_whoever_asks():
    edges = random_edges()
    sampler = NeighbourSampler(edges, 60, [3])
    everyone = sampler.incoming(np.arange(60), 3, SALTS[0])
    alone = sampler.incoming(np.array([17]), 3, SALTS[0])
    assert sorted(alone) == sorted(everyone[edges.target[everyone] == 17])
    assert sorted(sampler.incoming(np.arange(60), 3, SALTS[1])) != sorted(everyone)
    keys = hashed(np.arange(100_000), SALTS[0])
    assert len(np.unique(keys)) == 100_000


@pytest.mark.parametrize("fan_outs", [[], [0], [3, -2]])
def test_bad_fan_outs(fan_outs: list[int]):
    with pytest.raises(ValueError, match="must name a positive number of neighbours for each hop, or -1 for all"):
        NeighbourSampler(star(3), 4, fan_outs)
