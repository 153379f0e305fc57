import pytest
import torch

from lightning_modules.sheaf_admm.graph import AgentGraph
from lightning_modules.sheaf_admm.laplacian import SheafLaplacian, SlotLaplacian

pytest.importorskip("torch_geometric")

from lightning_modules.sheaf_admm.sheaf_conv import SheafDiffusionConv

GRAPHS = pytest.mark.parametrize("graph", [AgentGraph.sudoku(2, 2), AgentGraph.grid(3, 3)], ids=["sudoku", "grid"])


def layer_on(graph, step=0.05):
    torch.manual_seed(0)
    layer = SheafDiffusionConv(6, 3, num_types=graph.num_slots, step=step).double()
    return layer, torch.stack([graph.slot_u, graph.slot_v])


def close(a, b, tolerance=1e-12):
    assert a.shape == b.shape
    assert (a - b).abs().max() < tolerance


@GRAPHS
def test_equals_the_sheaf_laplacian(graph):
    layer, edge_type = layer_on(graph)
    maps = layer.maps.unsqueeze(1)
    laplacian = SheafLaplacian(graph, maps[graph.slot_u], maps[graph.slot_v])
    x = torch.randn(graph.num_nodes, 4, 6, dtype=torch.float64)
    expected = laplacian.matvec(x)
    close(layer.laplacian(x, graph.edge_index, edge_type), expected)
    close(layer(x, graph.edge_index, edge_type), x - 0.05 * expected)
    close(layer(x[:, 1], graph.edge_index, edge_type), x[:, 1] - 0.05 * expected[:, 1])


@GRAPHS
def test_gradients_equal_those_of_the_slot_form(graph):
    layer, edge_type = layer_on(graph)
    x = torch.randn(graph.num_nodes, 4, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.randn_like(x)
    products = layer.laplacian(x, graph.edge_index, edge_type), SlotLaplacian(graph, layer.maps).matvec(x)
    ours, expected = (torch.autograd.grad((product * weight).sum(), (x, layer.maps)) for product in products)
    for a, b in zip(ours, expected, strict=True):
        close(a, b)


def test_diffusion_lowers_the_energy_and_keeps_the_kernel():
    graph = AgentGraph.grid(3, 3, connectivity=4)
    layer, edge_type = layer_on(graph)
    laplacian = SlotLaplacian(graph, layer.maps)
    eigenvalues, vectors = torch.linalg.eigh(laplacian.dense()[0].detach())
    layer.step = 1.0 / eigenvalues[-1].item()
    x = torch.randn(9, 1, 6, dtype=torch.float64)
    kernel = vectors[:, eigenvalues < 1e-10]
    assert kernel.shape[1] > 0
    start, kept = laplacian.energy(x), x.flatten() @ kernel
    for _ in range(20):
        before = laplacian.energy(x)
        x = layer(x, graph.edge_index, edge_type)
        assert laplacian.energy(x) < before
    assert laplacian.energy(x) < 0.1 * start
    close(x.flatten() @ kernel, kept, 1e-10)


def test_one_type_needs_no_edge_type():
    graph = AgentGraph.sudoku(2, 2)
    layer = SheafDiffusionConv(4, 2)
    x = torch.randn(graph.num_nodes, 4)
    close(layer.laplacian(x, graph.edge_index), SlotLaplacian(graph, layer.maps).matvec(x.unsqueeze(1)).squeeze(1), 1e-5)
    close(layer.maps[0] @ layer.maps[0].t(), torch.eye(2), 1e-5)
    assert repr(layer) == "SheafDiffusionConv(4, 2, num_types=1, step=0.1)"


def test_bad_edge_types_are_refused():
    graph = AgentGraph.grid(2, 2)
    layer, edge_type = layer_on(graph)
    x = torch.zeros(4, 6, dtype=torch.float64)
    with pytest.raises(ValueError, match="8 types of edge ends needs edge_type"):
        layer(x, graph.edge_index)
    with pytest.raises(ValueError, match=r"\[2, 6\], got \[2, 5\]"):
        layer(x, graph.edge_index, edge_type[:, 1:])
