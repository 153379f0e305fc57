"""One layer of GESC, of its plain formulation and of PyG's attention layers on the same graph, to be timed and weighed."""

from typing import Any

from benchmarks.timing import Timed

CHANNELS, HEADS = 64, 4


def squirrel() -> tuple[Any, int]:
    """Return the edges of Squirrel, both directions and self-loops, and its number of nodes."""
    from datamodules import HeterophilousGraphDataModule

    return _edges(HeterophilousGraphDataModule("squirrel"))


def block_model(nodes: int, degree: int = 20) -> tuple[Any, int]:
    """Return the edges of a random Gauge-SBM, both directions and self-loops, and its number of nodes."""
    from datamodules import GaugeSBMDataModule

    return _edges(GaugeSBMDataModule(nodes=nodes, degree=degree))


def gesc_step(graph: tuple[Any, int], impl: str) -> Timed:
    """Return a forward and backward pass of a layer with random phases, ``fused`` or ``reference`` (gathers, then multiplies)."""
    import torch

    from lightning_modules import GESCConv

    torch.manual_seed(0)
    edge_index, nodes = graph
    layer = GESCConv(CHANNELS, heads=HEADS, sic=1.5, impl=impl)
    h_Nd = torch.randn(nodes, CHANNELS, dtype=torch.complex64, requires_grad=True)
    potential_N = torch.rand(nodes)
    phase_E = potential_N[edge_index[1]] - potential_N[edge_index[0]]

    def step() -> None:
        torch.view_as_real(layer(h_Nd, edge_index, phase_E)).square().sum().backward()
        layer.zero_grad()
        h_Nd.grad = None

    return step


def attention_step(graph: tuple[Any, int], name: str) -> Timed:
    """Return the same of ``GATConv`` with as many heads of as many real channels, or of ``FAConv``."""
    import torch
    from torch_geometric import nn

    torch.manual_seed(0)
    edge_index, nodes = graph
    x_Nd = torch.randn(nodes, CHANNELS, requires_grad=True)
    options = {"add_self_loops": False, "dropout": 0.2}
    gat = nn.GATConv(CHANNELS, CHANNELS, heads=HEADS, concat=False, **options)
    fa = nn.FAConv(CHANNELS, normalize=True, **options)
    layer = {"GATConv": lambda: gat(x_Nd, edge_index), "FAConv": lambda: fa(x_Nd, x_Nd, edge_index)}[name]

    def step() -> None:
        layer().square().sum().backward()
        gat.zero_grad()
        fa.zero_grad()
        x_Nd.grad = None

    return step


def _edges(data: Any) -> tuple[Any, int]:
    data.prepare_data()
    data.setup("fit")
    (graph,) = data.train_dataloader()
    return graph.edge_index, graph.num_nodes
