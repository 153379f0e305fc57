"""Each intervention does what it says, to whom it says, when it says."""

import pytest
import torch

from lightning_modules.sheaf_admm.admm import ADMMHistory, SheafADMM
from lightning_modules.sheaf_admm.graph import AgentGraph
from lightning_modules.sheaf_admm.interventions import (
    ClampProposal,
    DropAgents,
    DropEdges,
    DropRandomEdges,
    Intervention,
    KickConsensus,
    ScalePenalty,
    ZeroDual,
    edges_without_agents,
)
from lightning_modules.sheaf_admm.laplacian import CellLaplacian, SlotLaplacian
from lightning_modules.sheaf_admm.x_solvers import DiagonalProx
from lightning_modules.sheaf_admm.z_solvers import CGConsensus

DOUBLE = torch.float64
GRAPH = AgentGraph.sudoku(2, 2)
AGENTS, BATCH, STALK, STEPS = 12, 2, 9, 5


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


MAPS, H = random(4, 2, STALK, seed=1) / 3, random(AGENTS, BATCH, STALK, seed=2)
SOLVER = DiagonalProx(random(AGENTS, BATCH, STALK, seed=3).exp(), random(AGENTS, BATCH, STALK, seed=4))


def run(*interventions: Intervention, rho_init: float = 0.25, gamma: float = 2.0, **options) -> ADMMHistory:
    admm = SheafADMM(CGConsensus("soft", gamma, 3), rho_init=rho_init).double()
    laplacian = options.pop("laplacian", CellLaplacian(GRAPH, MAPS))
    return admm(SOLVER, laplacian, H, options.pop("steps", STEPS), interventions=interventions, record=True, **options).history


PLAIN = run()


def test_nothing_changes_nothing():
    assert torch.equal(run(Intervention()).x, PLAIN.x)


def test_clamp():
    value = random(2, 1, STALK, seed=5)
    clamped = run(ClampProposal([1, 4], value, first=2, last=3))
    assert torch.equal(clamped.x[0], PLAIN.x[0])
    assert torch.equal(clamped.x[1:3, [1, 4]], value.expand(2, 2, BATCH, STALK))
    assert torch.equal(clamped.x[1, 0], PLAIN.x[1, 0])
    assert not torch.allclose(clamped.x[2, 0], PLAIN.x[2, 0])
    assert not torch.allclose(clamped.x[3, 1], value[0])
    assert torch.equal(run(ClampProposal(None, value[0])).x[3], value[0].expand(AGENTS, BATCH, STALK))


def test_zero_dual():
    some = run(ZeroDual([2], first=2))
    assert torch.equal(some.u[0], PLAIN.u[0])
    assert some.u[1:, 2].abs().max() == 0
    assert torch.equal(some.u[1, 3], PLAIN.u[1, 3])
    assert some.u[2:, 3].abs().min() > 0
    everyone = run(ZeroDual())
    assert everyone.u.abs().max() == 0
    assert torch.equal(everyone.z[0], PLAIN.z[0])
    assert not torch.allclose(everyone.z[1], PLAIN.z[1])


def test_kick_happens_once_and_is_forgotten():
    kicked = run(KickConsensus(2, scale=0.5, agents=[3]), steps=300)
    plain = run(steps=300)
    assert torch.equal(kicked.x[:2], plain.x[:2])
    assert torch.equal(kicked.u[1], plain.u[1])
    change = kicked.z[1] - plain.z[1]
    assert 0.2 < change[3].std() < 1.0
    assert change[[0, 1, 2, 4]].abs().max() == 0
    assert not torch.allclose(kicked.x[2], plain.x[2])
    assert torch.allclose(kicked.x[-1], plain.x[-1], atol=1e-6)
    assert torch.equal(kicked.z, run(KickConsensus(2, 0.5, [3]), steps=300).z)
    assert not torch.equal(kicked.z, run(KickConsensus(2, 0.5, [3], seed=1), steps=300).z)


def test_scaled_penalties_equal_other_penalties():
    assert torch.allclose(run(ScalePenalty(rho=4.0)).x, run(rho_init=1.0).x, atol=1e-7)
    assert torch.allclose(run(ScalePenalty(gamma=0.25)).x, run(gamma=0.5).x)
    late = run(ScalePenalty(rho=4.0, first=3, last=4))
    assert torch.equal(late.x[:2], PLAIN.x[:2])
    assert not torch.allclose(late.x[2], PLAIN.x[2])
    assert torch.allclose(late.dual[2], (late.z[2] - late.z[1]).norm(dim=-1), atol=1e-6)


def test_dropped_agents_are_alone_and_the_others_go_on_without_them():
    dropped = run(DropAgents([5]))
    assert dropped.u[:, 5].abs().max() < 1e-14
    assert dropped.u[:, 4].abs().min() > 0
    masked = SlotLaplacian(GRAPH, MAPS, edge_mask=edges_without_agents(GRAPH, [5]))
    assert torch.allclose(dropped.x, run(laplacian=masked).x)
    assert run(DropAgents()).u.abs().max() < 1e-14
    late = run(DropAgents([5], first=3))
    assert torch.equal(late.z[:2], PLAIN.z[:2])
    assert not torch.allclose(late.z[2], PLAIN.z[2])


def test_dropped_edges():
    mask = torch.ones(GRAPH.num_edges)
    assert torch.allclose(run(DropEdges(mask)).x, PLAIN.x)
    mask[7] = 0
    assert torch.allclose(run(DropEdges(mask)).x, run(laplacian=SlotLaplacian(GRAPH, MAPS, edge_mask=mask)).x)
    assert not torch.allclose(run(DropEdges(mask)).x, PLAIN.x)


@pytest.mark.parametrize(("share", "silent"), [(0.0, 0), (0.25, 12), (0.5, 24), (1.0, 48)])
def test_random_edges_are_exactly_the_share(share, silent):
    assert GRAPH.num_edges == 48
    laplacian = CellLaplacian(GRAPH, MAPS)
    dropping = DropRandomEdges(share, seed=1, first=2, last=3)
    mask = dropping.on_laplacian(2, laplacian).edge_mask
    assert sorted(set(mask.tolist())) == [value for value in (0, 1) if (mask == value).any()]
    assert int((mask == 0).sum()) == silent
    assert torch.equal(dropping.on_laplacian(3, laplacian).edge_mask, mask), "the same edges in all iterations"
    assert dropping.on_laplacian(1, laplacian) is laplacian
    assert dropping.on_laplacian(4, laplacian) is laplacian
    others = DropRandomEdges(share, seed=2, first=2).on_laplacian(2, laplacian).edge_mask
    assert torch.equal(others, mask) == (share in (0, 1))


def test_random_edges_equal_their_mask():
    mask = DropRandomEdges(0.3, seed=5).on_laplacian(1, CellLaplacian(GRAPH, MAPS)).edge_mask
    assert torch.allclose(run(DropRandomEdges(0.3, seed=5)).x, run(DropEdges(mask)).x)
    assert not torch.allclose(run(DropRandomEdges(0.3, seed=5)).x, PLAIN.x)
    masked = SlotLaplacian(GRAPH, MAPS, edge_mask=edges_without_agents(GRAPH, [5]))
    both = DropRandomEdges(0.3, seed=5).on_laplacian(1, masked).edge_mask
    assert torch.equal(both[:, 0], mask * edges_without_agents(GRAPH, [5])), "edges that were silent stay so"


def test_edges_without_agents():
    mask = edges_without_agents(GRAPH, [0])
    assert ((mask == 0) == (GRAPH.edge_index == 0).any(dim=0)).all()
    assert 0 < mask.sum() < GRAPH.num_edges


def test_checkpointing_repeats_interventions():
    def gradient(checkpoint_every):
        q = random(AGENTS, BATCH, STALK, seed=4).requires_grad_()
        admm = SheafADMM(CGConsensus("soft", 2.0, 3), checkpoint_every=checkpoint_every).double()
        solver = DiagonalProx(random(AGENTS, BATCH, STALK, seed=3).exp(), q)
        events = (KickConsensus(2, 0.5), DropAgents([1], first=3), ClampProposal([0], H[0]))
        output = admm(solver, CellLaplacian(GRAPH, MAPS), H, STEPS, interventions=events, record=True)
        assert len(output.history.x) == STEPS
        return torch.autograd.grad(output.x.square().sum(), q)[0]

    assert torch.allclose(gradient(2), gradient(0), atol=1e-14)


class Misspelt(Intervention):
    def on_y(self, k, y):
        return y


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: run(ClampProposal([12], H[:1])), "no agent 12, the agents are 0..11"),
        (lambda: run(ZeroDual([-1])), "no agent -1"),
        (lambda: run(DropAgents([99])), "no agent 99"),
        (lambda: edges_without_agents(GRAPH, [12]), "no agent 12"),
        (lambda: run(KickConsensus(6, 0.1)), "starts at iteration 6, but the run has only 5"),
        (lambda: ZeroDual(first=0), "first=0"),
        (lambda: ZeroDual(first=4, last=3), "last=3"),
        (lambda: ScalePenalty(rho=0.0), "rho=0.0"),
        (lambda: ScalePenalty(gamma=-1.0), "gamma=-1.0"),
        (lambda: run(DropEdges(torch.ones(3))), "edge_mask must have shape"),
        (lambda: DropRandomEdges(1.1), "between 0 and 1 of the edges, got share=1.1"),
        (lambda: DropRandomEdges(0.5, first=0), "first=0"),
        (lambda: run(DropRandomEdges(0.5, first=6)), "starts at iteration 6"),
        (lambda: run(Misspelt()), "unknown hook 'on_y'"),
        (lambda: run(object()), "not an Intervention"),
    ],
)
def test_bad_interventions_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
