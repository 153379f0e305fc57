import torch
from gauge_graphs import random_graph

from lightning_modules.gesc.connection import U1Connection
from lightning_modules.gesc.links import links_of


def test_links_by_hand():
    links = links_of(torch.tensor([[4, 0, 1, 1, 3, 0], [1, 0, 4, 4, 1, 1]]), 5)
    assert links.ends.T.tolist() == [[0, 0], [0, 1], [1, 3], [1, 4]]
    assert links.link.tolist() == [3, 0, 3, 3, 2, 1]
    assert links.sign.tolist() == [-1, 0, 1, 1, -1, 1]


def test_learned_phases_are_those_of_the_formula():
    edges, _ = random_graph(duplicates=2)
    one_way = torch.cat([edges, torch.tensor([[0, 5], [11, 5]])], dim=1)
    torch.manual_seed(0)
    connection = U1Connection("learned", 6).double()
    torch.nn.init.normal_(connection.direction)
    x = torch.randn(12, 6, dtype=torch.float64)

    def f(a, b):
        return torch.tanh(a @ connection.target_map.T + b @ connection.source_map.T) @ connection.direction

    x_j, x_i = x[one_way[0]], x[one_way[1]]
    expected = torch.pi * torch.tanh(f(x_i, x_j) - f(x_j, x_i))
    for given in (x, x.to_sparse_csr()):
        found = connection(given, one_way)
        assert torch.allclose(found, expected, atol=1e-12)
        weights = torch.arange(1.0, len(found) + 1, dtype=torch.float64)
        gradients = [
            torch.autograd.grad((y * weights).sum(), list(connection.parameters()), retain_graph=True) for y in (found, expected)
        ]
        for one, other in zip(*gradients, strict=True):
            assert torch.allclose(one, other, atol=1e-9)
