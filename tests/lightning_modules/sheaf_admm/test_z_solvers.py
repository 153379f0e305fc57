"""z-updates against closed forms, scipy, dense algebra and finite differences."""

import numpy
import pytest
import torch
from scipy.sparse.linalg import cg

from lightning_modules.sheaf_admm.graph import AgentGraph
from lightning_modules.sheaf_admm.laplacian import CellLaplacian, SheafLaplacian
from lightning_modules.sheaf_admm.z_solvers import CGConsensus, ExactConsensus, GDConsensus, softplus_inverse

DOUBLE = torch.float64
RHO = torch.tensor(0.7, dtype=DOUBLE)
ENDS = torch.tensor([[0, 1, 2, 3, 3, 0], [1, 2, 3, 0, 1, 1]])
SLOT = torch.zeros(ENDS.shape[1], dtype=torch.long)
GRAPH = AgentGraph(ENDS, SLOT, SLOT, num_nodes=4, num_slots=1)
CG_KINDS = [{"mode": "soft", "gamma": 2.0}] + [{"mode": "hard", "start": start} for start in ("dual", "zero", "released")]


def random(*shape: int, seed: int = 0, dtype: torch.dtype = DOUBLE) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE).to(dtype)


def random_laplacian(maps_batch: int = 1, dtype: torch.dtype = DOUBLE) -> SheafLaplacian:
    F_u, F_v = (random(ENDS.shape[1], maps_batch, 1, 3, seed=seed, dtype=dtype) for seed in (10, 11))
    return SheafLaplacian(GRAPH, F_u, F_v)


def path_laplacian(agents: int, dtype: torch.dtype = DOUBLE) -> SheafLaplacian:
    ends = torch.stack([torch.arange(agents - 1), torch.arange(1, agents)])
    slot = torch.zeros(agents - 1, dtype=torch.long)
    maps = torch.ones(agents - 1, 1, 1, 1, dtype=dtype)
    return SheafLaplacian(AgentGraph(ends, slot, slot, agents, 1), maps, maps)


def states(batch: int = 2, stalk: int = 3, agents: int = 4, dtype: torch.dtype = DOUBLE) -> tuple[torch.Tensor, ...]:
    return tuple(random(agents, batch, stalk, seed=seed, dtype=dtype) for seed in (1, 2, 3))


def test_softplus_inverse():
    for value in (1e-4, 0.25, 3.0, 60.0):
        assert torch.nn.functional.softplus(torch.tensor(softplus_inverse(value), dtype=DOUBLE)).item() == pytest.approx(value)


def test_soft_exact_by_dense_algebra():
    laplacian, (v, u, z) = random_laplacian(), states()
    solved = ExactConsensus("soft", gamma=2.0)(laplacian, v, u, z, RHO)
    assert torch.allclose(2.0 * laplacian.matvec(solved) + RHO * (solved - v), torch.zeros_like(v), atol=1e-12)


def test_soft_exact_with_a_penalty_per_agent():
    laplacian, (v, u, z), rho = random_laplacian(maps_batch=2), states(), random(4, 2, 1, seed=5).exp()
    solved = ExactConsensus("soft", gamma=2.0)(laplacian, v, u, z, rho)
    assert torch.allclose(2.0 * laplacian.matvec(solved) + rho * (solved - v), torch.zeros_like(v), atol=1e-12)
    assert torch.allclose(CGConsensus("soft", gamma=2.0, steps=12)(laplacian, v, u, z, rho), solved, atol=1e-9)


def test_hard_exact_is_the_orthogonal_projection():
    laplacian, (v, u, z) = random_laplacian(), states()
    solved = ExactConsensus("hard")(laplacian, v, u, z, RHO)
    assert laplacian.delta(solved).abs().max() < 1e-11
    image = laplacian.matvec(random(4, 2, 3, seed=9))
    assert torch.allclose(((v - solved) * solved).sum((0, 2)), torch.zeros(2, dtype=DOUBLE), atol=1e-11)
    assert torch.allclose(ExactConsensus("hard")(laplacian, image, u, z, RHO), torch.zeros_like(v), atol=1e-10)
    assert solved.norm() > 0.1


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
@pytest.mark.parametrize("kind", CG_KINDS, ids=lambda kind: kind.get("start", "soft"))
def test_cg_equals_scipy(kind, steps):
    laplacian, (v, u, z) = random_laplacian(maps_batch=2), states()
    solved = CGConsensus(**kind, steps=steps)(laplacian, v, u, z, RHO)
    starts = {"dual": u, "zero": torch.zeros_like(v), "released": v - z}
    for sample in range(2):
        L = laplacian.dense()[sample].numpy()
        flat = {name: s[:, sample].flatten().numpy() for name, s in {"v": v, **starts}.items()}
        if kind["mode"] == "soft":
            matrix, right, start = 2.0 * L + RHO.item() * numpy.eye(12), RHO.item() * flat["v"], flat["v"]
        else:
            matrix, right, start = L + 1e-5 * numpy.eye(12), L @ flat["v"], flat[kind["start"]]
        answer, _ = cg(matrix, right, x0=start, maxiter=steps, rtol=0.0, atol=0.0)
        expected = answer if kind["mode"] == "soft" else flat["v"] - answer
        assert numpy.allclose(solved[:, sample].flatten().numpy(), expected, atol=1e-9)


def test_cg_without_steps_returns_its_start():
    v, u, z = states()
    assert torch.equal(CGConsensus("soft", steps=0)(random_laplacian(), v, u, z, RHO), v)


def test_cg_is_exact_after_as_many_steps_as_active_eigenvalues():
    # a path of four agents has the eigenvalues 0, 2 - sqrt 2, 2, 2 + sqrt 2, and the correction lies in the last three
    laplacian, (v, u, z) = path_laplacian(4), states(stalk=1)
    exact = ExactConsensus("soft")(laplacian, v, u, z, RHO)
    error = [(CGConsensus("soft", steps=steps)(laplacian, v, u, z, RHO) - exact).abs().max().item() for steps in (2, 3)]
    assert error[0] > 1e-4
    assert error[1] < 1e-12


def test_cg_energy_norm_of_the_error_falls():
    laplacian, (v, u, z) = random_laplacian(), states()
    exact = ExactConsensus("soft", gamma=2.0)(laplacian, v, u, z, RHO)
    norms = []
    for steps in range(8):
        error = CGConsensus("soft", gamma=2.0, steps=steps)(laplacian, v, u, z, RHO) - exact
        norms.append((error * (2.0 * laplacian.matvec(error) + RHO * error)).sum((0, 2)))
    assert (torch.stack(norms).diff(dim=0) < 0).all()


def test_cg_on_exact_sudoku_selectors_needs_one_step():
    graph, edge_dim = AgentGraph.sudoku(2, 3), 2
    side = graph.num_slots
    maps = torch.eye(side * edge_dim, dtype=DOUBLE).view(side, edge_dim, side * edge_dim)
    laplacian = CellLaplacian(graph, maps)
    eigenvalues = torch.linalg.eigvalsh(laplacian.dense()[0])
    assert torch.minimum(eigenvalues.abs(), (eigenvalues - 3).abs()).max() < 1e-10
    assert (eigenvalues < 1.5).sum() == side**2 * edge_dim
    v, u, z = states(agents=3 * side, stalk=side * edge_dim)
    mean = torch.zeros(side**2, 2, edge_dim, dtype=DOUBLE)
    copies = v.view(3 * side, 2, side, edge_dim).transpose(1, 2)
    mean.index_add_(0, graph.cell_index.flatten(), copies.flatten(0, 1) / 3)
    mean = mean[graph.cell_index].transpose(1, 2).flatten(2)
    soft = CGConsensus("soft", gamma=2.0, steps=1)(laplacian, v, u, z, RHO)
    assert torch.allclose(soft, mean + RHO / (RHO + 6.0) * (v - mean), atol=1e-12)
    hard = CGConsensus("hard", steps=1, start="zero", eps=0.0)(laplacian, v, u, z, RHO)
    assert torch.allclose(hard, mean, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
@pytest.mark.parametrize("eps", [0.0, 1e-5])
@pytest.mark.parametrize("kind", CG_KINDS, ids=lambda kind: kind.get("start", "soft"))
def test_cg_stays_exact_and_finite_after_convergence(kind, eps, dtype):
    laplacian, rho = path_laplacian(4, dtype), RHO.to(dtype).requires_grad_()
    v, u, z = states(batch=3, stalk=1, dtype=dtype)
    v[:, 1], u[:, 1], z[:, 1] = v[:1, 1], 0.0, v[:1, 1]
    v[:, 2], u[:, 2], z[:, 2] = 0.0, 0.0, 0.0
    u, z = laplacian.matvec(u), v - laplacian.matvec(u)
    v.requires_grad_()
    solved = CGConsensus(**kind, steps=100, eps=eps)(laplacian, v, u, z, rho)
    exact = ExactConsensus(kind["mode"], kind.get("gamma", 1.0))(laplacian, v, u, z, rho)
    assert torch.allclose(solved, exact, atol=2e-5 if eps or dtype == torch.float32 else 1e-10)
    (gradient,) = torch.autograd.grad(solved.square().sum(), v)
    (expected,) = torch.autograd.grad(exact.square().sum(), v)
    # the released start takes the consensus part from the previous z, never from v
    assert torch.allclose(gradient, 0 * expected if kind.get("start") == "released" else expected, atol=1e-3)


def test_batch_elements_do_not_influence_each_other():
    laplacian, (v, u, z) = random_laplacian(), states(batch=3)
    v[:, 1], u[:, 1] = 0.0, 0.0
    for kind in CG_KINDS:
        solver, v_in = CGConsensus(**kind, steps=3), v.clone().requires_grad_()
        solved = solver(laplacian, v_in, u, z, RHO)
        alone = solver(laplacian, v[:, :1], u[:, :1], z[:, :1], RHO)
        assert torch.allclose(solved[:, :1], alone, atol=1e-13)
        (gradient,) = torch.autograd.grad(solved[:, 0].square().sum(), v_in)
        assert gradient[:, 1:].abs().max() == 0
        assert gradient[:, 0].abs().max() > 0


@pytest.mark.parametrize("kind", CG_KINDS, ids=lambda kind: kind.get("start", "soft"))
def test_cg_gradients(kind):
    F_u, F_v = (random(ENDS.shape[1], 1, 1, 3, seed=seed).requires_grad_() for seed in (10, 11))
    inputs = [state.requires_grad_() for state in (*states(batch=1), RHO.clone())]
    solver = CGConsensus(**kind, steps=3)

    def solve(F_u, F_v, *inputs):
        return solver(SheafLaplacian(GRAPH, F_u, F_v), *inputs)

    assert torch.autograd.gradcheck(solve, (F_u, F_v, *inputs))


def test_limits_of_gamma():
    laplacian, (v, u, z) = random_laplacian(), states()
    for build in (CGConsensus, ExactConsensus, GDConsensus):
        solver = build("soft", gamma=0.0).double()
        assert torch.allclose(solver(laplacian, v, u, z, RHO), v, atol=1e-14)
    hard = ExactConsensus("hard")(laplacian, v, u, z, RHO)
    assert torch.allclose(ExactConsensus("soft", gamma=1e8)(laplacian, v, u, z, RHO), hard, atol=1e-6)
    assert torch.allclose(CGConsensus("soft", gamma=1e8, steps=15)(laplacian, v, u, z, RHO), hard, atol=1e-6)


def test_gradient_descent_converges_to_both_solutions():
    laplacian, (v, u, z) = random_laplacian(), states()
    for mode in ("soft", "hard"):
        descent = GDConsensus(mode, gamma=2.0, steps=3000, step_size=0.02).double()
        exact = ExactConsensus(mode, gamma=2.0)(laplacian, v, u, z, RHO)
        assert torch.allclose(descent(laplacian, v, u, z, RHO), exact, atol=1e-8)


def test_gradient_descent_by_hand():
    # L = [[1, -1], [-1, 1]], v = (0, 1): g = (-1, 1), trace = g, first step 1.9 * eta * g; then g' = (1 - 3.8 eta) g
    laplacian, v = path_laplacian(2), torch.tensor([0.0, 1.0], dtype=DOUBLE).view(2, 1, 1)
    one, two = (GDConsensus("hard", steps=steps, step_size=0.1).double()(laplacian, v, v, v, RHO) for steps in (1, 2))
    assert torch.allclose(one.flatten(), torch.tensor([0.19, 0.81], dtype=DOUBLE), atol=1e-7)
    step = 0.1 * (0.62 + 0.9 * (0.62 + 0.9))
    assert torch.allclose(two.flatten(), torch.tensor([0.19 + step, 0.81 - step], dtype=DOUBLE), atol=1e-7)


def test_gradient_descent_learns_its_step_size():
    laplacian, (v, u, z) = random_laplacian(), states()
    solver = GDConsensus("soft").double()
    solver(laplacian, v, u, z, RHO).square().sum().backward()
    assert solver.step_size_raw.grad.abs() > 0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: CGConsensus("firm"), "mode"),
        (lambda: CGConsensus("soft", gamma=-1.0), "gamma"),
        (lambda: CGConsensus("soft", start="dual"), "start='dual' belongs to mode 'hard'"),
        (lambda: CGConsensus("hard", start="warm"), "'dual', 'zero' or 'released'"),
        (lambda: CGConsensus("hard", steps=0), "at least 1"),
        (lambda: CGConsensus("soft", steps=-1), "at least 0"),
        (lambda: CGConsensus("hard", eps=-1.0), "eps"),
        (lambda: GDConsensus("hard", steps=0), "at least 1"),
        (lambda: GDConsensus(step_size=0.0), "step_size"),
        (lambda: GDConsensus(momentum=1.0), "momentum"),
        (lambda: CGConsensus("hard")(random_laplacian(), *states(), RHO.expand(4, 2, 1)), "one rho"),
    ],
)
def test_bad_arguments_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
