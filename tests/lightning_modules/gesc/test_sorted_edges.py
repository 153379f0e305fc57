import torch
from gauge_graphs import random_graph

from lightning_modules.gesc.sorted_edges import SortedEdges


def test_a_sorted_list_is_kept_and_a_shuffled_one_is_sorted():
    edge_index, theta = random_graph(duplicates=2)
    kept = SortedEdges.of(edge_index, 12)
    assert kept.order is None
    assert torch.equal(torch.stack([kept.source, kept.target]), edge_index)
    shuffle = torch.randperm(len(theta), generator=torch.Generator().manual_seed(0))
    edges = SortedEdges.of(edge_index[:, shuffle], 12)
    assert torch.equal(edges.target, edge_index[1])
    assert torch.equal(edges.sort(edge_index[0, shuffle]), edges.source)
    assert torch.equal(edges.unsort(edges.sort(theta[shuffle])), theta[shuffle])


def test_bounds_enclose_the_edges_of_each_node_even_if_there_are_none():
    edges = SortedEdges.of(torch.tensor([[4, 0, 4], [1, 1, 3]]), 6)
    assert edges.incoming.tolist() == [0, 0, 2, 2, 3, 3, 3]
    assert edges.outgoing.tolist() == [0, 1, 1, 1, 1, 3, 3]
    assert edges.source[edges.by_source].tolist() == [0, 4, 4]
    assert edges.receiver.tolist() == [1, 1, 3]


def test_copies_stand_side_by_side():
    edges = SortedEdges.of(torch.tensor([[4, 0, 4], [1, 1, 3]]), 5)
    copies = edges.copies(2)
    expected = SortedEdges.of(torch.tensor([[4, 0, 4, 9, 5, 9], [1, 1, 3, 6, 6, 8]]), 10)
    assert copies.num_nodes == 10
    for name in ("source", "target", "incoming", "by_source", "outgoing", "receiver"):
        assert torch.equal(getattr(copies, name), getattr(expected, name))
