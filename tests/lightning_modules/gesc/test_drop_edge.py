import torch
from small_graphs import small_graph
from torch_geometric.utils import is_undirected

from lightning_modules.gesc.drop_edge import drop_edges

GRAPH = small_graph(nodes=40, links=200, complex_features=True)
LOOPS = GRAPH.edge_index[0] == GRAPH.edge_index[1]


def test_links_go_with_both_directions_and_their_phases():
    torch.manual_seed(0)
    thinned = drop_edges(GRAPH, 0.5)
    links = int((~LOOPS).sum())
    assert 0.35 * links < thinned.num_edges - int(LOOPS.sum()) < 0.65 * links
    assert is_undirected(thinned.edge_index, num_nodes=40)
    assert int((thinned.edge_index[0] == thinned.edge_index[1]).sum()) == 40, "self-loops stay"
    values = {tuple(edge): i for i, edge in enumerate(GRAPH.edge_index.T.tolist())}
    kept = torch.tensor([values[tuple(edge)] for edge in thinned.edge_index.T.tolist()])
    assert torch.equal(kept, kept.sort().values), "in the order they had"
    assert torch.equal(thinned.edge_phase, GRAPH.edge_phase[kept])
    assert torch.equal(thinned.edge_direction, GRAPH.edge_direction[kept])
    assert thinned.x is GRAPH.x


def test_the_graph_itself_is_not_changed():
    edges = GRAPH.num_edges
    first, second = drop_edges(GRAPH, 0.3), drop_edges(GRAPH, 0.3)
    assert GRAPH.num_edges == edges == len(GRAPH.edge_phase)
    assert first.num_edges != second.num_edges or not torch.equal(first.edge_index, second.edge_index), "draws differ"
    assert drop_edges(GRAPH, 0.0) is GRAPH
