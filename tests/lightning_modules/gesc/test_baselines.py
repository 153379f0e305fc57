import math

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import FAConv, GCNConv, SAGEConv
from torch_geometric.utils import add_self_loops, remove_self_loops, to_dense_adj, to_undirected

from lightning_modules.gesc import h2gcn
from lightning_modules.gesc.backbones import _NETWORKS, build_backbone
from lightning_modules.gesc.baselines import FAGCN, GCN, GraphSAGE
from lightning_modules.gesc.gprgnn import GPRGNN
from lightning_modules.gesc.h2gcn import H2GCN, exact_hops, normalised_hops
from lightning_modules.gesc.magnet import MagNet

N, F, C = 12, 5, 3
PATH = to_undirected(torch.tensor([[0, 1, 2], [1, 2, 3]]))


def graph(seed: int = 0, loops: bool = True) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    edges = remove_self_loops(to_undirected(torch.randint(N - 1, (2, 16), generator=g), num_nodes=N))[0]
    return torch.randn(N, F, generator=g), add_self_loops(edges, num_nodes=N)[0] if loops else edges


def dense(edges_2E: Tensor, num_nodes: int) -> Tensor:
    matrix = torch.zeros(num_nodes, num_nodes)
    matrix[edges_2E[0], edges_2E[1]] = 1
    return matrix


@pytest.mark.parametrize("name", _NETWORKS)
def test_self_loops_of_the_graph_do_not_count_twice(name: str):
    torch.manual_seed(0)
    network = build_backbone(name, F, C, hidden=16, **({"q": 0.0} if name == "magnet" else {})).eval()  # type: ignore[arg-type]
    x, edges = graph()
    logits = network(x, edges)
    assert logits.shape == (N, C)
    assert torch.allclose(logits, network(x, remove_self_loops(edges)[0]), atol=1e-6)
    ring = torch.stack([torch.arange(N), torch.arange(N).roll(1)])
    other = network(x, add_self_loops(to_undirected(ring), num_nodes=N)[0])
    assert torch.allclose(logits, other, atol=1e-4) == (name == "mlp"), "all but the perceptron see the edges"


@pytest.mark.parametrize("name", _NETWORKS)
def test_nodes_have_no_order(name: str):
    torch.manual_seed(0)
    network = build_backbone(name, F, C, hidden=16, **({"q": 0.0} if name == "magnet" else {})).eval()  # type: ignore[arg-type]
    x, edges = graph()
    order = torch.randperm(N)
    position = order.argsort()
    assert torch.allclose(network(x, edges)[order], network(x[order], position[edges]), atol=1e-5)


def test_two_hops_of_a_path_of_four():
    one, two = exact_hops(add_self_loops(PATH, num_nodes=4)[0], 4)
    assert set(map(tuple, one.T.tolist())) == {(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)}
    assert set(map(tuple, two.T.tolist())) == {(0, 2), (2, 0), (1, 3), (3, 1)}
    triangle = to_undirected(torch.tensor([[0, 1, 2], [1, 2, 0]]))
    assert exact_hops(triangle, 3)[1].shape == (2, 0), "two steps lead to neighbours only"


def test_hops_are_distances_of_a_random_graph():
    _, edges = graph(3)
    one, two = exact_hops(torch.cat([edges, edges[:, :7]], dim=1), N)
    adjacency = dense(remove_self_loops(edges)[0], N)
    reached = (adjacency @ adjacency > 0) & (adjacency == 0) & ~torch.eye(N, dtype=torch.bool)
    assert torch.equal(dense(one, N), adjacency)
    assert torch.equal(dense(two, N), reached.float())
    assert reached.any()


def test_hops_are_normalised_by_their_own_degrees():
    hops = [hop.to_dense() for hop in normalised_hops(PATH, 4, torch.float32)]
    root = 1 / math.sqrt(2)
    assert torch.allclose(hops[0], torch.tensor([[0, root, 0, 0], [root, 0, 0.5, 0], [0, 0.5, 0, root], [0, 0, root, 0]]))
    assert torch.allclose(hops[1], dense(torch.tensor([[0, 2, 1, 3], [2, 0, 3, 1]]), 4))


def test_h2gcn_by_dense_matrices():
    torch.manual_seed(0)
    network = H2GCN(F, C, hidden=4).eval()
    x, edges = graph()
    matrices = []
    for hop in exact_hops(edges, N):
        adjacency = dense(hop, N)
        scale = adjacency.sum(dim=1).clamp_min(1).rsqrt()
        matrices.append(scale[:, None] * adjacency * scale)
    r0 = network.embedding(x).relu()
    r1 = torch.cat([matrix @ r0 for matrix in matrices], dim=1)
    r2 = torch.cat([matrix @ r1 for matrix in matrices], dim=1)
    assert torch.allclose(network(x, edges), network.classifier(torch.cat([r0, r1, r2], dim=1)), atol=1e-5)


def test_dense_hops_give_the_same(monkeypatch: pytest.MonkeyPatch):
    torch.manual_seed(0)
    network = H2GCN(F, C, hidden=4).eval()
    x, edges = graph()
    logits = {}
    for share in (0.0, 1.0):
        monkeypatch.setattr(h2gcn, "DENSE_SHARE", share)
        own = edges.clone()
        layout = torch.strided if share == 0 else torch.sparse_csr
        assert all(hop.layout == layout for hop in normalised_hops(own, N, torch.float32))
        logits[share] = network(x, own)
    assert torch.allclose(logits[0.0], logits[1.0], atol=1e-6)


def test_gprgnn_of_order_zero_is_its_perceptron():
    torch.manual_seed(0)
    network = GPRGNN(F, C, hidden=8).eval()
    x, edges = graph()
    expected = 0.1 * 0.9 ** torch.arange(11.0)
    expected[-1] = 0.9**10
    assert torch.allclose(network.weights, expected)
    assert network.weights.sum().item() == pytest.approx(1)
    assert not torch.allclose(network(x, edges), network.mlp(x, edges))
    with torch.no_grad():
        network.weights.zero_()[0] = 1
    assert torch.allclose(network(x, edges), network.mlp(x, edges))


def test_gprgnn_is_a_polynomial_of_the_normalised_adjacency():
    torch.manual_seed(0)
    network = GPRGNN(F, C, hidden=8, order=3).eval()
    x, edges = graph()
    adjacency = to_dense_adj(edges, max_num_nodes=N)[0]
    scale = adjacency.sum(dim=1).rsqrt()
    matrix = scale[:, None] * adjacency * scale
    z = network.mlp(x, edges)
    expected = sum(w * torch.matrix_power(matrix, k) @ z for k, w in enumerate(network.weights))
    assert torch.allclose(network(x, edges), expected, atol=1e-5)


def test_magnet_by_the_dense_laplacian():
    q = 0.2
    g = torch.Generator().manual_seed(0)
    directed = (torch.rand(N, N, generator=g) < 0.2).double()
    directed.fill_diagonal_(0)
    directed[0, 1] = directed[1, 0] = 1
    symmetric = (directed + directed.T) / 2
    i, j = (symmetric + torch.eye(N)).nonzero().T
    edges, direction = torch.stack([j, i]), directed[i, j] - directed[j, i]
    assert {-1.0, 0.0, 1.0} == set(direction.tolist())

    torch.manual_seed(0)
    network = MagNet(F, C, hidden=6, q=q).double().eval()
    x = torch.randn(N, F, generator=g, dtype=torch.float64)
    scale = symmetric.sum(dim=1).clamp_min(0.5).rsqrt()
    hermitian = (scale[:, None] * symmetric * scale) * torch.exp(2j * math.pi * q * (directed - directed.T))
    assert torch.equal(hermitian, hermitian.conj().T)
    laplacian = torch.eye(N) - hermitian
    h = x * (1 + 1j)
    for own, neighbours in zip(network.own, network.neighbours, strict=True):
        assert isinstance(own, nn.Linear)
        assert isinstance(neighbours, nn.Linear)
        h = h @ own.weight.T.to(h.dtype) + own.bias * (1 + 1j) + (laplacian - torch.eye(N)) @ h @ neighbours.weight.T.to(h.dtype)
        h = torch.where(h.real >= 0, h, 0)
    expected = network.classifier(torch.cat([h.real, h.imag], dim=1))
    assert torch.allclose(network(x, edges, direction.float()), expected, atol=1e-6)
    reversed_ = network(x, edges, -direction)
    assert not torch.allclose(reversed_, expected, atol=1e-3)
    network.q = 0
    assert torch.allclose(network(x, edges, direction), network(x, edges, -direction))


def test_magnet_needs_directions():
    x, edges = graph()
    with pytest.raises(ValueError, match="direction of the edges was discarded"):
        MagNet(F, C)(x, edges)


def test_layers_are_pygs():
    torch.manual_seed(0)
    x, edges = graph()
    bare = remove_self_loops(edges)[0]
    gcn, sage, fagcn = GCN(F, C, hidden=4).eval(), GraphSAGE(F, C, hidden=4).eval(), FAGCN(F, C, hidden=4).eval()
    assert all(isinstance(layer, GCNConv) for layer in gcn.convolutions)
    one, two = gcn.convolutions
    assert torch.allclose(gcn(x, edges), two(one(x, bare).relu(), bare), atol=1e-6)
    one, two = sage.convolutions
    assert isinstance(one, SAGEConv)
    assert torch.allclose(sage(x, edges), two(one(x, bare).relu(), bare), atol=1e-6)
    assert all(isinstance(layer, FAConv) for layer in fagcn.convolutions)
    one, two = (FAConv(4, eps=0.3).eval() for _ in range(2))
    for theirs, ours in zip((one, two), fagcn.convolutions, strict=True):
        theirs.load_state_dict(ours.state_dict())
    first = fagcn.embedding(x).relu()
    assert torch.allclose(fagcn(x, edges), fagcn.classifier(two(one(first, first, bare), first, bare)), atol=1e-6)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="'acm' is unknown: use one of mlp, gcn"):
        build_backbone("acm", F, C)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"'mlp' does not take the options .*heads"):
        build_backbone("mlp", F, C, heads=2)
    with pytest.raises(ValueError, match="hidden=12 of GAT must be a multiple of its heads=8"):
        build_backbone("gat", F, C, hidden=12)
