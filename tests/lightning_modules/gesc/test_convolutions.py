import pytest
import torch
from small_graphs import small_graph
from torch import Tensor
from torch_geometric.nn import GCNConv, SAGEConv
from torch_geometric.utils import remove_self_loops, to_dense_adj

from lightning_modules.gesc.adjacency import mean_adjacency, normalised_adjacency
from lightning_modules.gesc.convolutions import MeanConv, NormalisedConv

GRAPH = small_graph()
EDGES = torch.cat([GRAPH.edge_index, torch.tensor([[0, 1, 0], [1, 0, 1]])], dim=1)
"""With parallel edges."""
N, F = GRAPH.x.shape
X = GRAPH.x.double()


def outcome(layer: torch.nn.Module, x: Tensor, edges: Tensor) -> list[Tensor]:
    y = layer(x, edges)
    return [y, *torch.autograd.grad(y.square().sum(), list(layer.parameters()))]


def assert_same(one: list[Tensor], other: list[Tensor]) -> None:
    for a, b in zip(one, other, strict=True):
        assert torch.allclose(a, b, atol=1e-10, rtol=1e-10)
        assert a.abs().max() > 0


@pytest.mark.parametrize("width", [4, F, 20])
@pytest.mark.parametrize("ours", [NormalisedConv, MeanConv])
def test_layers_are_those_of_pyg(ours: type, width: int):
    torch.manual_seed(0)
    theirs = (GCNConv(F, width) if ours is NormalisedConv else SAGEConv(F, width, aggr="mean")).double()
    layer = ours(F, width).double()
    layer.load_state_dict(theirs.state_dict())
    edges = EDGES if ours is NormalisedConv else remove_self_loops(EDGES)[0]
    expected = outcome(theirs, X, edges)
    assert_same(outcome(layer, X, EDGES), expected)
    assert_same(outcome(layer, X.to_sparse_csr(), EDGES), expected)


@pytest.mark.parametrize("ours", [NormalisedConv, MeanConv])
def test_layers_start_as_those_of_pyg(ours: type):
    torch.manual_seed(0)
    layer = ours(F, 4)
    torch.manual_seed(0)
    theirs = GCNConv(F, 4) if ours is NormalisedConv else SAGEConv(F, 4, aggr="mean")
    assert all(torch.equal(a, b) for a, b in zip(layer.state_dict().values(), theirs.state_dict().values(), strict=True))
    assert layer.state_dict().keys() == theirs.state_dict().keys()


def test_a_node_without_neighbours():
    layer = MeanConv(F, 4).double()
    alone = torch.tensor([[0, 2], [1, 2]])
    y = layer(X[:3], alone)
    assert torch.allclose(y[[0, 2]], layer.lin_l.bias + layer.lin_r(X[[0, 2]]))
    assert torch.allclose(y[1], layer.lin_l(X[0]) + layer.lin_r(X[1]))


def test_adjacencies_by_dense_matrices():
    A = to_dense_adj(remove_self_loops(EDGES)[0], max_num_nodes=N)[0].double().t()
    assert A.max() > 1
    assert torch.allclose(mean_adjacency(EDGES, N, torch.float64).to_dense(), A / A.sum(1, keepdim=True).clamp_min(1))
    looped = A + torch.eye(N)
    scale = looped.sum(1).rsqrt()
    assert torch.allclose(normalised_adjacency(EDGES, N, torch.float64).to_dense(), scale[:, None] * looped * scale)


def test_adjacencies_point_from_source_to_target():
    one_way = torch.tensor([[0], [1]])
    assert mean_adjacency(one_way, 2, torch.float32).to_dense().tolist() == [[0, 0], [1, 0]]
    assert normalised_adjacency(one_way, 2, torch.float32).to_dense()[1, 0] > 0
    assert normalised_adjacency(one_way, 2, torch.float32).to_dense()[0, 1] == 0


def test_they_are_made_once_for_each_graph():
    edges = GRAPH.edge_index.clone()
    layer = NormalisedConv(F, 4)
    with torch.inference_mode():
        layer(GRAPH.x, edges)
    layer(GRAPH.x, edges).sum().backward()
    assert normalised_adjacency(edges, N, torch.float32) is normalised_adjacency(edges, N, torch.float32)
