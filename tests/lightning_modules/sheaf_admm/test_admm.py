"""The ADMM loop against values by hand, KKT systems, invariances and its own shortcuts."""

import pytest
import torch

from lightning_modules.sheaf_admm.admm import SheafADMM, StoppingRule
from lightning_modules.sheaf_admm.graph import AgentGraph
from lightning_modules.sheaf_admm.laplacian import SheafLaplacian
from lightning_modules.sheaf_admm.x_solvers import DiagonalProx
from lightning_modules.sheaf_admm.z_solvers import CGConsensus, ExactConsensus, GDConsensus

DOUBLE = torch.float64
AGENTS, BATCH, STALK, EDGE = 5, 3, 4, 2


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def layer(z_solver: torch.nn.Module, **options) -> SheafADMM:
    return SheafADMM(z_solver, **options).double()


def chain(agents: int = AGENTS, extra: bool = False) -> AgentGraph:
    ends = torch.stack([torch.arange(agents - 1), torch.arange(1, agents)])
    if extra:
        ends = torch.cat([ends, torch.tensor([[0, 3, 1], [2, 1, 0]])], dim=1)
    slot = torch.zeros(ends.shape[1], dtype=torch.long)
    return AgentGraph(ends, slot, slot, agents, 1)


def random_laplacian(graph: AgentGraph, maps_batch: int = 1) -> SheafLaplacian:
    return SheafLaplacian(graph, *(random(graph.num_edges, maps_batch, EDGE, STALK, seed=seed) / 2 for seed in (20, 21)))


def objective() -> tuple[torch.Tensor, torch.Tensor]:
    """Curvature and linear term of a random batch of agents."""
    return 0.5 + random(AGENTS, BATCH, STALK, seed=1).abs(), random(AGENTS, BATCH, STALK, seed=2)


def two_agents() -> tuple[DiagonalProx, SheafLaplacian, torch.Tensor]:
    """f_i = (x - a_i)^2 / 2 with a = (0, 2), joined by F = 1."""
    one = torch.ones(1, 1, 1, 1, dtype=DOUBLE)
    target = torch.tensor([0.0, 2.0], dtype=DOUBLE).view(2, 1, 1)
    return DiagonalProx(torch.ones_like(target), -target), SheafLaplacian(chain(2), one, one), torch.zeros_like(target)


def numbers(state: torch.Tensor) -> list[float]:
    return state.flatten().tolist()


def test_consensus_by_hand():
    history = layer(ExactConsensus("hard"), rho_init=1.0)(*two_agents(), steps=6, record=True).history
    approx = pytest.approx
    assert numbers(history.x[0]) == approx([0, 1])
    assert numbers(history.z[0]) == approx([0.5, 0.5])
    assert numbers(history.u[0]) == approx([-0.5, 0.5])
    assert numbers(history.x[1]) == approx([0.5, 1])
    assert numbers(history.u[1]) == approx([-0.75, 0.75])
    assert numbers(history.x[2]) == approx([0.75, 1])
    assert numbers(history.z[:, 0]) == approx([1 - 2.0**-k for k in range(1, 7)])


def test_consensus_rate():
    history = layer(ExactConsensus("hard"), rho_init=3.0)(*two_agents(), steps=8, record=True).history
    assert numbers((1 - history.z[:, 0]).abs()) == pytest.approx([0.75**k for k in range(1, 9)])


def test_soft_by_hand():
    history = layer(ExactConsensus("soft", gamma=1.0), rho_init=1.0)(*two_agents(), steps=100, record=True).history
    assert numbers(history.z[0]) == pytest.approx([1 / 3, 2 / 3])
    assert numbers(history.x[1]) == pytest.approx([1 / 3, 7 / 6])
    assert numbers(history.x[-1]) == pytest.approx([2 / 3, 4 / 3])
    assert numbers(history.u[-1]) == pytest.approx([-2 / 3, 2 / 3])


def test_soft_dual_identity_in_every_iteration():
    admm, laplacian = layer(ExactConsensus("soft", gamma=2.0), rho_init=0.3), random_laplacian(chain())
    history = admm(DiagonalProx(*objective()), laplacian, random(AGENTS, BATCH, STALK), steps=10, record=True).history
    for z, u in zip(history.z, history.u, strict=True):
        assert torch.allclose(u, 2.0 / admm.rho * laplacian.matvec(z), atol=1e-12)
    assert history.u.abs().max() > 0.1


@pytest.mark.parametrize("start", ["dual", "zero"])
def test_hard_dual_stays_orthogonal_to_consensus(start):
    laplacian = random_laplacian(chain())
    admm = layer(CGConsensus("hard", steps=12, start=start, eps=0.0))
    history = admm(DiagonalProx(*objective()), laplacian, random(AGENTS, BATCH, STALK), steps=15, record=True).history
    project = ExactConsensus("hard").bind(laplacian, admm.rho)
    for z, u in zip(history.z, history.u, strict=True):
        assert laplacian.delta(z).abs().max() < 1e-10
        assert project(u, u, u).abs().max() < 1e-10
    assert history.disagreement.max() < 1e-10
    assert history.u.abs().max() > 0.1


def test_soft_fixed_point_is_the_kkt_point():
    (Q, q), laplacian = objective(), random_laplacian(chain())
    admm = layer(CGConsensus("soft", gamma=2.0, steps=8), rho_init=1.0)
    output = admm(DiagonalProx(Q, q), laplacian, random(AGENTS, BATCH, STALK), steps=150)
    matrix = Q.transpose(0, 1).flatten(1).diag_embed() + 2.0 * laplacian.dense()
    solution = torch.linalg.solve(matrix, -q.transpose(0, 1).flatten(1))
    assert torch.allclose(output.x.transpose(0, 1).flatten(1), solution, atol=1e-6)
    assert torch.allclose(admm.rho * output.u, -(Q * output.x + q), atol=1e-6)


def hard_solution(Q: torch.Tensor, q: torch.Tensor, laplacian: SheafLaplacian) -> torch.Tensor:
    """Minimise the agents' objectives subject to δx = 0 through the KKT matrix."""
    size = AGENTS * STALK
    unit = torch.eye(size, dtype=DOUBLE).view(size, AGENTS, STALK).transpose(0, 1)
    delta = laplacian.delta(unit).transpose(1, 2).flatten(0, 1)
    solutions = []
    for sample in range(BATCH):
        top = torch.cat([Q[:, sample].flatten().diag(), delta.T], 1)
        bottom = torch.cat([delta, delta.new_zeros(len(delta), len(delta))], 1)
        right = torch.cat([-q[:, sample].flatten(), delta.new_zeros(len(delta))])
        solutions.append(torch.linalg.solve(torch.cat([top, bottom]), right)[:size].view(AGENTS, STALK))
    return torch.stack(solutions, dim=1)


def test_hard_fixed_point_is_the_kkt_point_except_for_the_released_start():
    (Q, q), laplacian, h = objective(), random_laplacian(chain()), random(AGENTS, BATCH, STALK)
    assert (torch.linalg.eigvalsh(laplacian.dense()[0]) < 1e-10).sum() == 12
    solution, errors, runs = hard_solution(Q, q, laplacian), {}, {}
    for start, inner in (("dual", 5), ("zero", 5), ("zero", 8), ("released", 5)):
        admm = layer(CGConsensus("hard", steps=inner, start=start, eps=0.0), rho_init=1.0)
        runs[start] = admm(DiagonalProx(Q, q), laplacian, h, steps=100, record=True)
        errors[start, inner] = (runs[start].x - solution).abs().max().item()
    assert errors["dual", 5] < 1e-9
    assert errors["zero", 5] > 1e-3
    assert errors["zero", 8] < 1e-9
    assert errors["released", 5] > 0.1
    project = ExactConsensus("hard").bind(laplacian, torch.ones((), dtype=DOUBLE))
    frozen, moving = (
        max((project(z, z, z) - project(h, h, h)).abs().max().item() for z in runs[start].history.z)
        for start in ("released", "dual")
    )
    assert frozen < 1e-6
    assert moving > 0.1


def test_warm_start_stays_accurate_long_after_convergence():
    (Q, q), laplacian = objective(), random_laplacian(chain())
    admm = layer(CGConsensus("hard", steps=12, eps=0.0), rho_init=1.0)
    with torch.no_grad():
        output = admm(DiagonalProx(Q, q), laplacian, random(AGENTS, BATCH, STALK), steps=300)
    assert torch.allclose(output.x, hard_solution(Q, q, laplacian), atol=1e-10)


@pytest.mark.parametrize("z_solver", [CGConsensus("soft", 2.0, 3), CGConsensus("hard", steps=3), GDConsensus("soft", 0.5)])
def test_trajectories_rotate_with_the_agents_bases(z_solver):
    graph, h, q = chain(extra=True), random(AGENTS, BATCH, STALK), random(AGENTS, BATCH, STALK, seed=2)
    Q = 0.5 + random(AGENTS, BATCH, 1, seed=1).abs()
    laplacian = random_laplacian(graph, BATCH)
    P = torch.linalg.qr(random(AGENTS, STALK, STALK, seed=3)).Q

    def turn(states):
        return torch.einsum("nij,...nbj->...nbi", P, states)

    u, v = graph.edge_index
    turned = SheafLaplacian(graph, *(F @ P[end].mT.unsqueeze(1) for F, end in zip(laplacian.edge_maps(), (u, v), strict=True)))
    admm = layer(z_solver)
    plain = admm(DiagonalProx(Q, q), laplacian, h, steps=6, record=True).history
    rotated = admm(DiagonalProx(Q, turn(q)), turned, turn(h), steps=6, record=True).history
    for name in ("x", "z", "u"):
        assert torch.allclose(getattr(rotated, name), turn(getattr(plain, name)), atol=1e-10)
    assert torch.allclose(rotated.primal, plain.primal)
    assert torch.allclose(rotated.disagreement, plain.disagreement)


def test_flipped_edges_and_edge_bases_change_nothing():
    graph, h, admm = chain(extra=True), random(AGENTS, BATCH, STALK), layer(CGConsensus("soft", 2.0, 3))
    laplacian = random_laplacian(graph)
    F_u, F_v = laplacian.edge_maps()
    O_e = torch.linalg.qr(random(graph.num_edges, 1, EDGE, EDGE, seed=4)).Q
    flipped = AgentGraph(graph.edge_index.flip(0), graph.slot_v, graph.slot_u, AGENTS, 1)
    expected = admm(DiagonalProx(*objective()), laplacian, h, steps=5).x
    for other in (SheafLaplacian(flipped, F_v, F_u), SheafLaplacian(graph, O_e @ F_u, O_e @ F_v)):
        assert torch.allclose(admm(DiagonalProx(*objective()), other, h, steps=5).x, expected, atol=1e-12)


def test_relabelled_agents_permute_the_output():
    graph, h, admm = chain(extra=True), random(AGENTS, BATCH, STALK), layer(CGConsensus("soft", 2.0, 3))
    order = torch.tensor([3, 0, 4, 1, 2])
    relabelled = AgentGraph(order.argsort()[graph.edge_index], graph.slot_u, graph.slot_v, AGENTS, 1)
    (Q, q), laplacian = objective(), random_laplacian(graph)
    expected = admm(DiagonalProx(Q, q), laplacian, h, steps=5).x[order]
    permuted = SheafLaplacian(relabelled, *laplacian.edge_maps())
    assert torch.allclose(admm(DiagonalProx(Q[order], q[order]), permuted, h[order], steps=5).x, expected, atol=1e-12)


def test_relaxation():
    (Q, q), laplacian, h = objective(), random_laplacian(chain()), random(AGENTS, BATCH, STALK)
    relaxed = layer(ExactConsensus("soft"), alpha=1.6, rho_init=1.0)
    history = relaxed(DiagonalProx(Q, q), laplacian, h, steps=200, record=True).history
    assert torch.allclose(history.u[0] + history.z[0], 1.6 * history.x[0] - 0.6 * h)
    assert torch.allclose(history.primal[0], (1.6 * history.x[0] - 0.6 * h - history.z[0]).norm(dim=-1))
    plain = layer(ExactConsensus("soft"), rho_init=1.0)(DiagonalProx(Q, q), laplacian, h, steps=300)
    assert torch.allclose(history.x[-1], plain.x, atol=1e-8)


def test_agents_are_independent_without_coupling():
    (Q, q), h, admm = objective(), random(AGENTS, BATCH, STALK), layer(CGConsensus("soft", gamma=0.0))
    output = admm(DiagonalProx(Q, q), random_laplacian(chain()), h, steps=200)
    assert output.u.abs().max() == 0
    assert torch.allclose(output.x, -q / Q, atol=1e-9)


@pytest.mark.parametrize("z_init", ["h", "zeros"])
def test_no_iterations_return_the_start(z_init):
    h = random(AGENTS, BATCH, STALK)
    output = layer(CGConsensus(), z_init=z_init)(
        DiagonalProx(*objective()), random_laplacian(chain()), h, steps=0, window=2, keep=[0], record=True
    )
    assert torch.equal(output.x, h)
    assert torch.equal(output.x_window, h[None])
    assert torch.equal(output.kept[0], h)
    assert output.iterations == 0
    assert output.history is None


def test_start_from_zeros():
    Q, q = objective()
    output = layer(CGConsensus(), z_init="zeros", rho_init=0.5)(
        DiagonalProx(Q, q), random_laplacian(chain()), random(AGENTS, BATCH, STALK), steps=1
    )
    assert torch.allclose(output.x, -q / (Q + 0.5))


def test_window_and_kept_horizons_are_slices_of_the_history():
    output = layer(CGConsensus())(
        DiagonalProx(*objective()), random_laplacian(chain()), random(AGENTS, BATCH, STALK), 7, window=3, keep=[2, 7], record=True
    )
    assert torch.equal(output.x_window, output.history.x[-3:])
    assert torch.equal(output.x, output.history.x[-1])
    assert torch.equal(output.kept[2], output.history.x[1])
    assert torch.equal(output.kept[7], output.x)
    assert torch.equal(output.z, output.history.z[-1])
    assert torch.equal(output.u, output.history.u[-1])


def test_residuals_of_the_history():
    h, admm = random(AGENTS, BATCH, STALK), layer(CGConsensus(), rho_init=0.4)
    history = admm(DiagonalProx(*objective()), random_laplacian(chain()), h, 3, record=True).history
    assert torch.allclose(history.primal[1], (history.x[1] - history.z[1]).norm(dim=-1))
    assert torch.allclose(history.dual[1], 0.4 * (history.z[1] - history.z[0]).norm(dim=-1))
    assert torch.allclose(history.dual[0], 0.4 * (history.z[0] - h).norm(dim=-1))
    assert torch.allclose(history.log_ratio[1], (history.primal[1] / history.dual[1]).log())


def gradients(steps: int = 6, window: int = 2, **options) -> list[torch.Tensor]:
    """Gradients of a loss on the window with respect to everything that learns."""
    Q, q = objective()
    leaves = [tensor.clone().requires_grad_() for tensor in (Q, q, random(AGENTS, BATCH, STALK))]
    maps = [F.requires_grad_() for F in random_laplacian(chain()).edge_maps()]
    admm = layer(CGConsensus("soft", 2.0, 3), **options)
    output = admm(DiagonalProx(leaves[0], leaves[1], low=0.0), SheafLaplacian(chain(), *maps), leaves[2], steps, window)
    return list(torch.autograd.grad(output.x_window.square().sum(), [*leaves, *maps, admm.rho_raw], allow_unused=True))


def test_checkpointing_changes_no_gradient():
    plain = gradients()
    for every in (1, 2, 4, 9):
        for expected, gradient in zip(plain, gradients(checkpoint_every=every), strict=True):
            assert torch.allclose(gradient, expected, atol=1e-14)


def test_gradient_window():
    plain = gradients()
    for expected, gradient in zip(plain, gradients(grad_window=6), strict=True):
        assert torch.equal(gradient, expected)
    for checkpoint_every in (0, 2):
        short = gradients(grad_window=3, checkpoint_every=checkpoint_every)
        assert short[2] is None
        assert not torch.allclose(short[0], plain[0])


def test_gradient_window_is_the_gradient_of_the_last_iterations():
    (Q, q), laplacian, h = objective(), random_laplacian(chain()), random(AGENTS, BATCH, STALK)
    q.requires_grad_()
    admm = layer(CGConsensus("soft", 2.0, 3), grad_window=1)
    (short,) = torch.autograd.grad(admm(DiagonalProx(Q, q), laplacian, h, 5).x.sum(), q)
    assert torch.allclose(short, -1 / (Q + admm.rho))


def test_stopping_rule():
    admm, laplacian, h = layer(CGConsensus("soft", 2.0), rho_init=1.0), random_laplacian(chain()), random(AGENTS, BATCH, STALK)
    solver, rule = DiagonalProx(*objective()), StoppingRule(1e-6, 1e-5)
    admm.eval()
    output = admm(solver, laplacian, h, 500, window=2, stop=rule, keep=[3, 400], record=True)
    assert 5 < output.iterations < 400
    assert len(output.history.x) == output.iterations
    assert torch.equal(output.kept[400], output.x)
    assert torch.equal(output.kept[3], output.history.x[2])
    assert torch.equal(output.x_window, output.history.x[-2:])
    slack, x, z, u = 1e-6 * (AGENTS * STALK) ** 0.5, output.history.x, output.history.z, output.history.u

    def size(state):
        return state.square().sum((0, 2)).sqrt()

    met = []
    for k in range(1, output.iterations):
        primal = size(x[k] - z[k]) <= slack + 1e-5 * torch.maximum(size(x[k]), size(z[k]))
        dual = size(z[k] - z[k - 1]) <= slack + 1e-5 * size(u[k])
        met.append(bool((primal & dual).all()))
    assert met[-1]
    assert not any(met[:-1])
    admm.train()
    with pytest.raises(ValueError, match="eval"):
        admm(solver, laplacian, h, 500, stop=rule)


def test_penalty_override():
    (Q, q), laplacian, h = objective(), random_laplacian(chain()), random(AGENTS, BATCH, STALK)
    admm = layer(ExactConsensus("soft", 2.0), rho_init=0.7)
    assert admm.rho.item() == pytest.approx(0.7)
    learned = admm(DiagonalProx(Q, q), laplacian, h, 5).x
    same = admm(DiagonalProx(Q, q), laplacian, h, 5, rho=torch.full((AGENTS, BATCH), 0.7)).x
    assert torch.allclose(learned, same, atol=1e-6)
    uneven = random(AGENTS, BATCH, seed=8).exp()
    output = admm(DiagonalProx(Q, q), laplacian, h, 300, rho=uneven)
    assert torch.allclose(output.x, admm(DiagonalProx(Q, q), laplacian, h, 300).x, atol=1e-6)
    assert torch.allclose(uneven[..., None] * output.u, -(Q * output.x + q), atol=1e-6)


@pytest.mark.parametrize(("steps", "inner"), [(1, 1), (2, 1), (1, 3), (2, 2)])
def test_news_travels_one_hop_per_gradient_step(steps, inner):
    agents = 8
    graph = chain(agents)
    laplacian = SheafLaplacian(graph, *(random(agents - 1, 1, EDGE, STALK, seed=seed) for seed in (1, 2)))
    h = random(agents, 1, STALK).requires_grad_()
    solver = DiagonalProx(torch.ones(agents, 1, STALK, dtype=DOUBLE), torch.zeros(agents, 1, STALK, dtype=DOUBLE))
    z = layer(GDConsensus("soft", 2.0, inner))(solver, laplacian, h, steps).z
    (gradient,) = torch.autograd.grad(z[0].square().sum(), h)
    reached = gradient.abs().sum((1, 2)) > 0
    assert reached.tolist() == [agent <= steps * inner for agent in range(agents)]


def float_problem() -> tuple[torch.Tensor, ...]:
    """Q, q, both maps and h in single precision."""
    return tuple(t.float() for t in (*objective(), *random_laplacian(chain()).edge_maps(), random(AGENTS, BATCH, STALK)))


def test_compiled_iteration_equals_eager():
    admm, graph = SheafADMM(CGConsensus("soft", 2.0, 2)), chain()

    def iterate(Q, q, F_u, F_v, h):
        return admm(DiagonalProx(Q, q, low=0.0), SheafLaplacian(graph, F_u, F_v), h, 1).z

    with torch.no_grad():
        compiled = torch.compile(iterate, fullgraph=True)(*float_problem())
        assert torch.allclose(compiled, iterate(*float_problem()), atol=1e-5)


def test_traced_gradient_equals_eager():
    admm, graph = SheafADMM(CGConsensus("hard", steps=1)), chain()

    def loss(Q, q, F_u, F_v, h):
        return admm(DiagonalProx(Q, q, low=0.0), SheafLaplacian(graph, F_u, F_v), h, 2, 2).x_window.square().sum()

    def slope(function):
        inputs = [tensor.requires_grad_() for tensor in float_problem()]
        return torch.autograd.grad(function(*inputs), [*inputs, admm.rho_raw])

    for expected, gradient in zip(slope(loss), slope(torch.compile(loss, backend="aot_eager", fullgraph=True)), strict=True):
        assert torch.allclose(gradient, expected, atol=1e-5)


def test_autocast_is_switched_off():
    Q, q, F_u, F_v, h = float_problem()
    admm, solver, laplacian = SheafADMM(CGConsensus()), DiagonalProx(Q, q), SheafLaplacian(chain(), F_u, F_v)
    expected = admm(solver, laplacian, h, 3).x
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(admm(solver, laplacian, h, 3).x, expected)
        assert admm(solver, laplacian, h.bfloat16(), 3).z.dtype == torch.float32


def test_first_nonfinite_names_iteration_and_variable():
    (Q, q), laplacian, h = objective(), random_laplacian(chain()), random(AGENTS, BATCH, STALK)
    admm = layer(CGConsensus())
    assert admm.first_nonfinite(DiagonalProx(Q, q), laplacian, h, 4) is None
    exploding = layer(GDConsensus("soft", 1.0, 10, step_size=1e16))
    assert "z is first not finite at iteration" in exploding.first_nonfinite(DiagonalProx(Q, q), laplacian, h, 9)
    q[2, 1, 0] = torch.nan
    assert admm.first_nonfinite(DiagonalProx(Q, q), laplacian, h, 4).startswith(
        "x is first not finite at iteration 1 of 4 (agent 2,"
    )
    h[3, 0, 0] = torch.inf
    assert "start z0" in admm.first_nonfinite(DiagonalProx(Q, q), laplacian, h, 4)
    torch.nn.init.constant_(admm.rho_raw, torch.nan)
    assert "rho" in admm.first_nonfinite(DiagonalProx(Q, q), laplacian, torch.zeros_like(h), 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rho_init": 0.0}, "rho_init"),
        ({"alpha": 2.0}, "alpha"),
        ({"z_init": "ones"}, "z_init"),
        ({"checkpoint_every": -1}, "checkpoint_every"),
        ({"grad_window": 0}, "grad_window"),
    ],
)
def test_bad_layers_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        SheafADMM(CGConsensus(), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 2, "window": 3}, "W=3, K=2"),
        ({"steps": 2, "window": 0}, "W=0, K=2"),
        ({"steps": -1}, "K=-1"),
        ({"steps": 3, "keep": [4]}, "keep"),
        ({"steps": 3, "rho": torch.ones(AGENTS)}, "rho must be a scalar or"),
        ({"steps": 3, "rho": torch.zeros(AGENTS, BATCH)}, "rho must be positive"),
        ({"steps": 3, "window": 2}, "grad_window=1"),
        ({"steps": 3, "z0_NBd": torch.zeros(AGENTS, BATCH, STALK + 1)}, "z0 must have shape"),
    ],
)
def test_bad_runs_are_refused(options, message):
    arguments = {"z0_NBd": random(AGENTS, BATCH, STALK), **options}
    with pytest.raises(ValueError, match=message):
        layer(CGConsensus(), grad_window=1)(DiagonalProx(*objective()), random_laplacian(chain()), **arguments)
