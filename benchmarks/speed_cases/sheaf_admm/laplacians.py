"""The sheaf Laplacian beside other ways to compute the same; each case first checks that both sides agree."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric import __version__ as pyg_version

from benchmarks.speed import Case
from benchmarks.timing import PairedTimes, measure
from lightning_modules.sheaf_admm.admm import SheafADMM
from lightning_modules.sheaf_admm.graph import AgentGraph
from lightning_modules.sheaf_admm.laplacian import CellLaplacian, SheafLaplacian, SlotLaplacian
from lightning_modules.sheaf_admm.paired_laplacian import PairedLaplacian
from lightning_modules.sheaf_admm.sheaf_conv import SheafDiffusionConv
from lightning_modules.sheaf_admm.x_solvers import DiagonalProx
from lightning_modules.sheaf_admm.z_solvers import CGConsensus

BATCH = 128
SUDOKU_STALKS = (288, 32)
MAZE_STALKS = (10, 5)
GAMMA, RHO, CG_STEPS = 2.0, 0.25, 5


def cell_laplacian(pairs: int) -> PairedTimes:
    """Two GEMMs and cell means against a gather over edges."""
    state_dim, edge_dim = SUDOKU_STALKS
    graph, maps, z_NBd = _random(AgentGraph.sudoku(3, 3), state_dim, edge_dim)
    return _same(CellLaplacian(graph, maps).matvec, _generic(graph, maps).matvec, z_NBd, pairs)


def edges_beside_pyg(graph: AgentGraph, stalks: tuple[int, int], batch: int) -> Callable[[int], PairedTimes]:
    """The generic Laplacian against PyG's MessagePassing."""

    def time(pairs: int) -> PairedTimes:
        _, maps, z_NBd = _random(graph, *stalks, batch=batch)
        return _same(_generic(graph, maps).matvec, _pyg(graph, maps), z_NBd, pairs)

    return time


def pairs_beside_pyg(pairs: int) -> PairedTimes:
    """The Laplacian of edge ends in pairs against PyG's MessagePassing."""
    graph, maps, z_NBd = _random(AgentGraph.grid(9, 9), *MAZE_STALKS)
    laplacian = PairedLaplacian(graph, maps)
    return _same(laplacian.matvec, _pyg(graph, maps), laplacian.arranged(z_NBd), pairs)


def pairs_beside_slots(pairs: int) -> PairedTimes:
    """With maps of every agent and sample: edge ends in pairs against gathers and scatters over edges, forward and backward."""
    graph, maps, z_NBd = _random(AgentGraph.grid(9, 9), *MAZE_STALKS, batch=32)
    own_maps = maps.expand(graph.num_nodes, 32, -1, -1, -1).contiguous().requires_grad_()
    paired, slots = PairedLaplacian(graph, own_maps), SlotLaplacian(graph, own_maps)

    def both_ways(laplacian: SheafLaplacian) -> Callable[[], None]:
        z = laplacian.arranged(z_NBd).requires_grad_()
        return lambda: torch.autograd.backward(laplacian.matvec(z).sum(), inputs=[z, own_maps], retain_graph=True)

    torch.testing.assert_close(paired.matvec(z_NBd), slots.matvec(z_NBd), rtol=1e-4, atol=1e-5)
    return measure(both_ways(paired), both_ways(slots), pairs)


def cg_beside_dense(pairs: int) -> PairedTimes:
    """Five CG steps against a dense solve of the same system; the maps change at every training step, so both start afresh."""
    graph, maps, v_NBd = _random(AgentGraph.grid(9, 9), *MAZE_STALKS)
    rho, solver = torch.tensor(RHO), CGConsensus("soft", gamma=GAMMA, steps=CG_STEPS)
    u_NBd = torch.zeros_like(v_NBd)

    def ours() -> Tensor:
        return solver(SlotLaplacian(graph, maps), v_NBd, u_NBd, v_NBd, rho)

    def peer() -> Tensor:
        system = GAMMA * SlotLaplacian(graph, maps).dense()[0]
        system.diagonal().add_(rho)
        right = rho * v_NBd.transpose(1, 2).flatten(0, 1)
        return torch.linalg.solve(system, right).unflatten(0, (graph.num_nodes, -1)).transpose(1, 2)

    with torch.no_grad():
        return measure(ours, peer, pairs)


def compiled_iteration(pairs: int) -> PairedTimes:
    """One ADMM iteration after torch.compile against the same in eager mode, without gradients."""
    graph, maps, z_NBd = _random(AgentGraph.sudoku(3, 3), *SUDOKU_STALKS, batch=16)
    rho = torch.tensor(RHO)
    admm = SheafADMM(CGConsensus("soft", gamma=GAMMA, steps=CG_STEPS), rho_init=RHO)
    x_update = DiagonalProx(torch.rand_like(z_NBd) + 0.5, torch.randn_like(z_NBd), low=0.0).bind(rho)
    z_update = admm.z_solver.bind(CellLaplacian(graph, maps), rho)

    def iteration(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return admm.iteration(x_update, z_update, z, torch.zeros_like(z))

    return _same(torch.compile(iteration), iteration, z_NBd, pairs)


def _random(graph: AgentGraph, state_dim: int, edge_dim: int, batch: int = BATCH) -> tuple[AgentGraph, Tensor, Tensor]:
    """Return the graph, random slot maps ``[S, e, d]`` of norm about one and random states ``[N, B, d]``."""
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(graph.num_slots, edge_dim, state_dim, generator=generator) / state_dim**0.5
    return graph, maps, torch.randn(graph.num_nodes, batch, state_dim, generator=generator)


def _generic(graph: AgentGraph, maps: Tensor) -> SheafLaplacian:
    """Return the Laplacian with one map for each edge end."""
    return SheafLaplacian(graph, maps[graph.slot_u].unsqueeze(1), maps[graph.slot_v].unsqueeze(1))


def _pyg(graph: AgentGraph, maps: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the product with the Laplacian as a PyG layer computes it."""
    layer = SheafDiffusionConv(maps.shape[2], maps.shape[1], num_types=graph.num_slots)
    layer.maps.data.copy_(maps)
    edge_type = torch.stack([graph.slot_u, graph.slot_v])
    return lambda z: layer.laplacian(z, graph.edge_index, edge_type)


@torch.no_grad()
def _same(ours: Callable[[Tensor], Any], peer: Callable[[Tensor], Any], argument: Tensor, pairs: int) -> PairedTimes:
    """Check that two functions agree, then time them."""
    torch.testing.assert_close(ours(argument), peer(argument), rtol=1e-4, atol=1e-5)
    return measure(lambda: ours(argument), lambda: peer(argument), pairs)


CASES = (
    Case("Sudoku 9×9 Laplacian by cells (27 agents, d_v 288, d_e 32, batch 128)", "our generic edges", "", cell_laplacian, 10),
    Case(
        "Laplacian in pairs, maze 19×19 px (81 agents, 272 edges, d_v 10, d_e 5, batch 128)",
        "PyG MessagePassing",
        pyg_version,
        pairs_beside_pyg,
    ),
    Case(
        "Laplacian in pairs with maps per sample, forward and backward, maze 19×19 px (batch 32)",
        "our slots with gathers over edges",
        "",
        pairs_beside_slots,
    ),
    Case(
        "generic Laplacian, maze 19×19 px (81 agents, 272 edges, d_v 10, d_e 5, batch 128)",
        "PyG MessagePassing",
        pyg_version,
        edges_beside_pyg(AgentGraph.grid(9, 9), MAZE_STALKS, BATCH),
    ),
    Case(
        "generic Laplacian, Sudoku 9×9 (27 agents, 243 edges, d_v 288, d_e 32, batch 16)",
        "PyG MessagePassing",
        pyg_version,
        edges_beside_pyg(AgentGraph.sudoku(3, 3), SUDOKU_STALKS, 16),
        10,
    ),
    Case(
        "z-update by 5 CG steps, maze 19×19 px (810 unknowns, batch 128)", "torch.linalg.solve", torch.__version__, cg_beside_dense
    ),
    Case(
        "one ADMM iteration compiled, Sudoku 9×9 (d_v 288, batch 16)", "eager", torch.__version__, compiled_iteration, needs="g++"
    ),
)
