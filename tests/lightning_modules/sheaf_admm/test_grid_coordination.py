"""What the place of an agent on a grid means: who can hear whom how soon, and which symmetries the coordination has."""

import pytest
import torch
from torch import Tensor

from lightning_modules.sheaf_admm.admm import SheafADMM
from lightning_modules.sheaf_admm.baselines import RecurrentMPNN
from lightning_modules.sheaf_admm.graph import AgentGraph
from lightning_modules.sheaf_admm.maze import MazeTask
from lightning_modules.sheaf_admm.module import RecurrentMPNNModule, SheafADMMModule
from lightning_modules.sheaf_admm.paired_laplacian import PairedLaplacian
from lightning_modules.sheaf_admm.restriction_maps import RestrictionMaps
from lightning_modules.sheaf_admm.x_solvers import DiagonalProx
from lightning_modules.sheaf_admm.z_solvers import CGConsensus, GDConsensus

DOUBLE = torch.float64
BATCH, STALK, EDGE = 2, 4, 2


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def hops(graph: AgentGraph, agent: int) -> Tensor:
    """Hops from one agent to all others, by walking the edges."""
    distance = torch.full((graph.num_nodes,), graph.num_nodes)
    distance[agent] = 0
    for _ in range(graph.num_nodes):
        u, v = graph.edge_index
        distance = distance.scatter_reduce(0, v, distance[u] + 1, "amin").scatter_reduce(0, u, distance[v] + 1, "amin")
    return distance


def influence(output: Tensor, agent: int, source: Tensor) -> Tensor:
    """Size of the gradient of one agent's output with respect to what each agent was given, ``[N]``."""
    (gradient,) = torch.autograd.grad(output[agent].sum(), source, retain_graph=True)
    return gradient.abs().flatten(1).amax(1)


def assert_reach(felt: Tensor, distance: Tensor, reach: int) -> None:
    assert (felt[distance <= reach] > 0).all()
    assert not felt[distance > reach].any()


GRIDS = {"path": AgentGraph.grid(1, 9), "grid": AgentGraph.grid(5, 5), "grid of 4": AgentGraph.grid(5, 5, connectivity=4)}


@pytest.mark.parametrize("mode", ["soft", "hard"])
@pytest.mark.parametrize(("iterations", "inner"), [(1, 1), (1, 3), (2, 1), (2, 2), (3, 1)])
@pytest.mark.parametrize("kind", GRIDS)
def test_gradient_descent_carries_news_one_hop_a_step(kind, iterations, inner, mode):
    graph = GRIDS[kind]
    h, q = (random(graph.num_nodes, BATCH, STALK, seed=seed).requires_grad_() for seed in (1, 2))
    Q = 0.5 + random(graph.num_nodes, BATCH, STALK, seed=3).abs()
    laplacian = PairedLaplacian(graph, random(8, EDGE, STALK, seed=4) / 2)
    admm = SheafADMM(GDConsensus(mode, steps=inner)).double()
    output = admm(DiagonalProx(Q, q), laplacian, h, iterations)
    distance = hops(graph, 0)
    assert distance.max() > 3
    assert_reach(influence(output.z, 0, q), distance, iterations * inner)
    assert_reach(influence(output.x, 0, q), distance, (iterations - 1) * inner)
    assert_reach(influence(output.z, 0, h), distance, iterations * inner)


def test_conjugate_gradients_reach_everybody_by_their_step_lengths():
    graph = GRIDS["path"]
    h = random(graph.num_nodes, BATCH, STALK, seed=1).requires_grad_()
    solver = DiagonalProx(torch.ones_like(h), torch.zeros_like(h))
    output = SheafADMM(CGConsensus("soft", steps=1)).double()(
        solver, PairedLaplacian(graph, random(8, EDGE, STALK, seed=4) / 2), h, steps=1
    )
    assert (influence(output.z, 0, h) > 0).all()


@pytest.mark.parametrize("routing", ["receiver", "receiver_slot"])
@pytest.mark.parametrize("kind", GRIDS)
def test_message_passing_carries_news_one_hop_a_round(kind, routing):
    torch.manual_seed(0)
    graph = GRIDS[kind]
    mpnn = RecurrentMPNN(8, STALK, message_dim=3, pooling="mean", routing=routing).double()
    h = random(graph.num_nodes, BATCH, STALK).requires_grad_()
    for rounds in (0, 1, 2, 3):
        assert_reach(influence(mpnn(graph, h, rounds)[0], 0, h), hops(graph, 0), rounds)


@pytest.mark.parametrize("kind", ["sheaf", "mpnn"])
def test_an_agent_of_a_module_knows_the_views_within_its_reach_only(kind):
    torch.manual_seed(0)
    task = MazeTask(state_dim=6, edge_dim=3, hidden_dim=16)
    module = SheafADMMModule(task, solver="gd", solver_steps=2, lora_rank=1, learned_box=True, l1=1e-3, upper=50.0, lower=-50.0)
    if kind == "mpnn":
        module = RecurrentMPNNModule(task, message_dim=3, pooling="mean")
    module = module.double()
    for parameter in module.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    batch = {"maze": torch.randint(1, 5, (1, 5, 17))}
    graph, view = task.graph_of(batch), task.views(batch).requires_grad_()
    assert graph.num_nodes == 16
    if kind == "sheaf":
        state, reach = module.admm(*module._problem(batch, view), steps=3).x, 2 * 2
    else:
        state, reach = module.mpnn(graph, task.encode(view)[0], 3)[0], 3
    for agent in (0, 15):
        distance = hops(graph, agent)
        assert distance.max() > reach
        assert_reach(influence(task.decode(state, view.detach()), agent, view), distance, reach)


def images_of(agents: Tensor) -> list[Tensor]:
    """All eight dihedral images of a square of agents."""
    turned = [agents.rot90(k, (0, 1)) for k in range(4)]
    return [image.flatten() for square in turned for image in (square, square.flip(0))]


def moved_error(maps: RestrictionMaps, connectivity: int) -> float:
    """How far coordination is from commuting with the dihedral images of the grid of agents."""
    graph = AgentGraph.grid(4, 4, connectivity)
    Q, q, h = 0.5 + random(16, BATCH, STALK).abs(), random(16, BATCH, STALK, seed=1), random(16, BATCH, STALK, seed=2)
    admm, worst = SheafADMM(CGConsensus("soft", 2.0, 3)).double(), 0.0
    with torch.no_grad():
        plain = admm(DiagonalProx(Q, q, low=0.0), maps(graph), h, steps=5).x
        for order in images_of(torch.arange(16).view(4, 4)):
            moved = admm(DiagonalProx(Q[order], q[order], low=0.0), maps(graph), h[order], steps=5).x
            worst = max(worst, (moved - plain[order]).abs().max().item())
    return worst


@pytest.mark.parametrize("connectivity", [4, 8])
def test_one_map_for_all_directions_makes_coordination_dihedral(connectivity):
    torch.manual_seed(0)
    assert moved_error(RestrictionMaps("global", STALK, EDGE).double(), connectivity) < 1e-12
    assert moved_error(RestrictionMaps("identity", STALK, STALK).double(), connectivity) < 1e-12
    assert moved_error(RestrictionMaps("directional", STALK, EDGE).double(), connectivity) > 1e-2


@pytest.mark.parametrize("kind", ["directional", "global"])
def test_relabelled_agents_of_a_grid_permute_the_output(kind):
    torch.manual_seed(0)
    graph, order = AgentGraph.grid(3, 4), torch.randperm(12)
    renamed = AgentGraph(order.argsort()[graph.edge_index], graph.slot_u, graph.slot_v, 12, 8)
    maps = RestrictionMaps(kind, STALK, EDGE, feature_dim=5, lora_rank=1).double()
    torch.nn.init.normal_(maps.left_head.weight)
    Q, q, h = 0.5 + random(12, BATCH, STALK).abs(), random(12, BATCH, STALK, seed=1), random(12, BATCH, STALK, seed=2)
    context, weights = random(12, BATCH, 5, seed=3), torch.rand(graph.num_edges, BATCH, dtype=DOUBLE)
    admm = SheafADMM(CGConsensus("soft", 2.0, 3)).double()
    plain = admm(DiagonalProx(Q, q), maps(graph, context, weights), h, steps=5).x
    moved = admm(DiagonalProx(Q[order], q[order]), maps(renamed, context[order], weights), h[order], steps=5).x
    assert torch.allclose(moved, plain[order], atol=1e-10)
    assert not torch.allclose(moved, plain, atol=1e-2)
    mpnn = RecurrentMPNN(8, STALK, message_dim=3, routing="receiver_slot").double()
    assert torch.allclose(mpnn(renamed, h[order], 3)[0], mpnn(graph, h, 3)[0][order], atol=1e-12)
