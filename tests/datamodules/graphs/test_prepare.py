import numpy as np
import pytest

from datamodules.graphs.prepare import Edges, edge_homophily, prepare_edges, with_self_loops

# two edges of which one goes both ways, a duplicate and a self-loop
STORED = np.array([[0, 1], [2, 1], [1, 2], [0, 1], [3, 3]])


def pairs(edges: Edges) -> list[tuple[int, int]]:
    return list(zip(edges.source.tolist(), edges.target.tolist(), strict=True))


def test_symmetric_sorted_and_without_duplicates():
    edges = prepare_edges(STORED, nodes=4)
    assert pairs(edges) == [(1, 0), (0, 1), (2, 1), (1, 2)]
    assert edges.direction is None


def test_direction_is_b_ij_minus_b_ji():
    edges = prepare_edges(STORED, nodes=4, directed=True)
    assert pairs(edges) == [(1, 0), (0, 1), (2, 1), (1, 2)]
    # stored 0 -> 1: for the edge j=1 -> i=0 B_ij = B_01 = 1 and B_ji = B_10 = 0; 1 and 2 have both directions
    assert edges.direction.tolist() == [1, -1, 0, 0]
    assert edges.direction.dtype == np.float32


def test_direction_of_a_cycle_adds_up():
    edges = prepare_edges(np.array([[0, 1], [1, 2], [2, 0]]), nodes=3, directed=True)
    assert dict(zip(pairs(edges), edges.direction.tolist(), strict=True)) == {
        **{(0, 1): -1, (1, 2): -1, (2, 0): -1},
        **{(1, 0): 1, (2, 1): 1, (0, 2): 1},
    }


def test_stored_directions_alone():
    edges = prepare_edges(STORED, nodes=4, directed=True, undirected=False)
    assert pairs(edges) == [(0, 1), (2, 1), (1, 2)]
    assert edges.direction.tolist() == [-1, 0, 0]


def test_self_loops_keep_the_order_and_carry_zeros():
    edges = prepare_edges(STORED, nodes=4, directed=True)
    edges = Edges(edges.source, edges.target, edges.direction, np.array([1, 2, 3, 4], dtype=np.float32))
    looped = with_self_loops(edges, 4)
    assert pairs(looped) == [(0, 0), (1, 0), (0, 1), (1, 1), (2, 1), (1, 2), (2, 2), (3, 3)]
    assert looped.phase.tolist() == [0, 1, 2, 0, 3, 4, 0, 0]
    assert looped.direction.tolist() == [0, 1, -1, 0, 0, 0, 0, 0]
    assert looped.phase.dtype == looped.direction.dtype == np.float32


def test_phases_of_other_edges_are_refused():
    edges = Edges(np.array([0, 1]), np.array([1, 0]), phase=np.zeros(4, dtype=np.float32))
    with pytest.raises(ValueError, match="4 values of edge phase for 2 edges: give one each, before self-loops are added"):
        with_self_loops(edges, 2)


def test_homophily():
    edges = with_self_loops(prepare_edges(np.array([[0, 1], [1, 2], [2, 3], [0, 3]]), 4), 4)
    assert edge_homophily(edges, np.array([0, 0, 1, 2])) == 0.25
