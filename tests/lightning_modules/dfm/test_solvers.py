import pytest
import torch
from flow_laws import Flow, random_flow, source
from torch import Tensor

from lightning_modules.dfm.path import DiscretePath
from lightning_modules.dfm.schedulers import CosineScheduler, PolynomialScheduler
from lightning_modules.dfm.solvers import DISCRETE_SOLVERS, SolverOutput, get_discrete_solver
from lightning_modules.dfm.solvers.chains import Chains
from lightning_modules.dfm.solvers.time_grid import make_time_grid

pytestmark = pytest.mark.filterwarnings("ignore:ordinal tau-leaping")

NAMES = [name for name in DISCRETE_SOLVERS if not name.startswith("metric")]
FLOWS = {kind: random_flow(kind, 3, 4) for kind in ("uniform", "mask")}


def run(flow: Flow, name: str, batch: int = 500, seed: int = 0, options: dict | None = None, **sampling: object) -> SolverOutput:
    generator = torch.Generator().manual_seed(seed)
    x_init = flow.source.init((batch, flow.table.ndim), generator)
    return flow.solver(name, **(options or {})).sample(x_init, generator=generator, **sampling)


def kinds_of(name: str) -> list[str]:
    return ["mask"] if name == "first_hitting" else ["uniform", "mask"]


@pytest.mark.parametrize("name", NAMES)
def test_samples_are_tokens_and_the_start_is_kept(name: str):
    for kind in kinds_of(name):
        flow = FLOWS[kind]
        x_init = flow.source.init((50, 4), torch.Generator().manual_seed(1))
        before = x_init.clone()
        found = flow.solver(name).sample(x_init, n_steps=3, return_intermediates=True, generator=torch.Generator().manual_seed(2))
        assert torch.equal(x_init, before)
        assert found.x.dtype == torch.int64
        assert found.x.shape == (50, 4)
        assert ((found.x >= 0) & (found.x < 3)).all() or (kind, name) == ("mask", "tau_leaping")
        assert found.trajectory is not None
        assert found.trajectory.shape == (4, 50, 4)
        assert torch.equal(found.trajectory[0], x_init)
        assert not torch.equal(found.trajectory[1], x_init)
        if kind == "uniform":
            assert torch.equal(found.trajectory[-1], found.x)
        again = flow.solver(name).sample(x_init.int(), n_steps=3, generator=torch.Generator().manual_seed(2))
        assert torch.equal(again.x, found.x)
        assert again.trajectory is None


@pytest.mark.parametrize("name", NAMES)
def test_a_seeded_sample_does_not_depend_on_its_batch(name: str):
    for kind in kinds_of(name):
        flow = FLOWS[kind]
        seeds = torch.arange(40) * 7
        x_init = flow.source.init((40, 4), seeds=seeds)
        options = {"skip_finished": True} if kind == "mask" else {}
        whole = flow.solver(name).sample(x_init, n_steps=3, seeds=seeds, final="posterior").x
        part = flow.solver(name).sample(x_init[11:17], n_steps=3, seeds=seeds[11:17], final="posterior", **options).x
        assert torch.equal(whole[11:17], part)
        assert not torch.equal(whole, flow.solver(name).sample(x_init, n_steps=3, seeds=seeds + 1, final="posterior").x)


def test_one_call_samplers_count_their_steps():
    for name in ("euler", "tc", "tau_leaping"):
        found = run(FLOWS["uniform"], name, n_steps=6)
        assert (found.nfe_calls, found.evals_per_sample) == (6, 6)
        found = run(FLOWS["mask"], name, n_steps=6)
        assert (found.nfe_calls, found.evals_per_sample) == (7, 7)
    for name in ("theta_rk2", "theta_trap"):
        assert run(FLOWS["uniform"], name, n_steps=6).nfe_calls == 12
        assert run(FLOWS["mask"], name, n_steps=6, final="state").nfe_calls == 12


def test_location_correction_counts_rows_that_jump():
    rows: list[int] = []

    def counted(x: Tensor, t: Tensor) -> Tensor:
        rows.append(len(x))
        return FLOWS["uniform"].oracle(x, t)

    flow = FLOWS["uniform"]
    solver = get_discrete_solver("lc", model=counted, path=flow.path, vocabulary_size=3, source=flow.source)
    found = solver.sample(flow.source.init((300, 4)), n_steps=10, return_intermediates=True)
    assert found.nfe_calls == len(rows) <= 20
    assert found.evals_per_sample == sum(rows) / 300
    assert found.trajectory is not None
    moved = (found.trajectory.diff(dim=0) != 0).any(dim=-1)
    assert 10 + moved.sum().item() / 300 <= found.evals_per_sample < 20, "every sample that moved was asked about twice"


def test_location_correction_of_one_masked_token_costs_its_one_jump():
    flow = random_flow("mask", 3, 1)
    found = run(flow, "lc", batch=20_000, n_steps=5, final="state")
    assert found.evals_per_sample == pytest.approx(5 + 0.95, abs=0.007)
    assert found.nfe_calls == 10
    assert run(flow, "lc", batch=20_000, n_steps=5).nfe_calls == 11


def test_no_jump_no_second_call():
    found = run(FLOWS["uniform"], "lc", time_grid=[0.0, 1e-12, 2e-12])
    assert (found.nfe_calls, found.evals_per_sample) == (2, 2)


def test_finished_samples_can_be_skipped():
    flow = random_flow("mask", 3, 1)
    found = run(flow, "tc", batch=20_000, n_steps=4, skip_finished=True)
    still_masked = sum(0.05 ** (k / 4) for k in range(5))
    assert found.evals_per_sample == pytest.approx(still_masked, abs=0.02)
    assert found.nfe_calls == 5
    assert (found.x < 3).all()


@pytest.mark.parametrize("kind", ["uniform", "mask"])
def test_beyond_all_tokens_location_correction_is_time_correction(kind: str):
    corrected = run(FLOWS[kind], "lc", n_steps=3, options={"j": 5})
    plain = run(FLOWS[kind], "tc", n_steps=3)
    assert torch.equal(corrected.x, plain.x)
    assert corrected.nfe_calls == plain.nfe_calls


@pytest.mark.parametrize("kind", ["uniform", "mask"])
def test_fewer_jumps_than_j_all_stand(kind: str):
    sampling = {"batch": 4000, "time_grid": [0.0, 0.3], "final": "state", "return_intermediates": True}
    plain = run(FLOWS[kind], "tc", **sampling)
    corrected = run(FLOWS[kind], "lc", options={"j": 4}, **sampling)
    changes = (plain.trajectory.diff(dim=0)[0] != 0).sum(dim=1)
    rows_renewed = round((corrected.evals_per_sample - 1) * 4000)
    assert rows_renewed == (changes == 4).sum() > 0
    assert torch.equal(plain.x[changes < 4], corrected.x[changes < 4])
    assert (changes[changes < 4] > 0).any()


def test_automatic_j():
    solver = FLOWS["mask"].solver("lc", j="auto")
    assert solver.jumps_before_renewal(576, 4) == 72
    assert solver.jumps_before_renewal(4, 50) == 1


def test_grids():
    for scheduler in (PolynomialScheduler(), PolynomialScheduler(2), CosineScheduler()):
        grid = make_time_grid(scheduler, 4, delta=0.01)
        assert torch.allclose(1 - scheduler.kappa(grid.t), 0.01 ** (torch.arange(5) / 4).double())
        steps = grid.steps()
        assert [step.log_ratio for step in steps] == pytest.approx([-torch.tensor(0.01).log().item() / 4] * 4)
        assert steps[0].start == 0
    uniform = make_time_grid(PolynomialScheduler(), 3, delta=0.1, grid="uniform")
    assert uniform.t.tolist() == pytest.approx([0, 0.3, 0.6, 0.9])
    assert [step.hazard for step in uniform.steps()] == pytest.approx([1, 1 / 0.7, 1 / 0.4])
    assert make_time_grid(PolynomialScheduler(), step_size=0.4, delta=0.1).t.tolist() == pytest.approx([0, 0.4, 0.8, 0.9])
    assert make_time_grid(PolynomialScheduler(), step_size=0.5, time_grid=[0.0, 1.0]).t.tolist() == [0, 0.5, 1]


def test_a_grid_to_one_leaves_the_last_step_to_the_posterior():
    flow = FLOWS["uniform"]
    found = run(flow, "euler", batch=100_000, time_grid=[0.0, 0.5, 0.9, 1.0], final="posterior")
    assert found.nfe_calls == 3
    law = flow.exact.propagate("euler", make_time_grid(flow.scheduler, time_grid=[0.0, 0.5, 0.9]))
    expected = flow.exact.finish(law, 0.9, "posterior")
    cells = (found.x * 3 ** torch.arange(3, -1, -1)).sum(dim=1).bincount(minlength=81) / 100_000
    assert (cells - expected).abs().max() < 5 * (expected.max() / 100_000).sqrt()


def test_conditions_go_with_their_samples():
    flow = FLOWS["mask"]

    def model(x: Tensor, t: Tensor, label: Tensor, scale: float) -> Tensor:
        assert len(label) == len(x) == len(t)
        assert scale == 2.0
        wanted = torch.nn.functional.one_hot(label, 4).double().unsqueeze(1).expand(-1, 4, -1)
        return torch.where((x == 3).unsqueeze(-1), wanted, torch.nn.functional.one_hot(x, 4))

    label = torch.arange(200) % 3
    solver = get_discrete_solver("lc", model=model, path=flow.path, vocabulary_size=4, source=flow.source)
    found = solver.sample(flow.source.init((200, 4)), n_steps=3, label=label, scale=2.0)
    assert torch.equal(found.x, label.unsqueeze(1).expand(-1, 4))


def wrong(kind: str, change):
    flow = FLOWS[kind]
    return flow.solver("tc"), flow.source.init((8, 4)), lambda x, t: change(flow.oracle(x, t), x)


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("uniform", lambda p, x: p.log(), "at step 0 .*logits"),
        ("uniform", lambda p, x: p * torch.nan, "NaN"),
        ("mask", lambda p, x: 0.5 * p + 0.5 * torch.eye(4)[3], "mask id"),
        ("mask", lambda p, x: 0.5 * p + 0.5 * torch.eye(4)[0], r"at step [1-9].*not masked any more"),
    ],
)
def test_models_that_return_no_posterior(kind: str, change, message: str):
    solver, x_init, model = wrong(kind, change)
    solver.model = model
    with pytest.raises(ValueError, match=message):
        solver.sample(x_init, n_steps=5)


def test_where_waiting_is_costly_later_answers_are_checked_at_the_end():
    answers = [torch.full((2, 1, 3), 1 / 3), torch.full((2, 1, 3), 1 / 3), torch.full((2, 1, 3), 0.5)]
    chains = Chains(lambda x, t: answers.pop(0), None, 2, 3, {}, None, None, torch.float32, torch.device("cpu"))
    chains.checks_every_call = False
    for chains.step in range(2):
        chains.posterior(torch.zeros(2, 1, dtype=torch.int64), 0.1)
        chains.check()
    chains.step = 2
    chains.select(torch.tensor([0, 1])).posterior(torch.zeros(2, 1, dtype=torch.int64), 0.1)
    with pytest.raises(ValueError, match="at step 2 .*do not sum to 1"):
        chains.check()


@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        ({"n_steps": 0}, "n_steps=0"),
        ({}, "needs n_steps"),
        ({"n_steps": 2, "time_grid": [0.0, 0.5]}, "not both"),
        ({"n_steps": 2, "delta": 0.0}, "delta=0.0"),
        ({"n_steps": 2, "delta": 1.0}, "delta=1.0"),
        ({"n_steps": 2, "grid": "cosine"}, "grid='cosine'"),
        ({"time_grid": [0.0, 0.5, 0.4]}, "rise"),
        ({"time_grid": [0.0, 0.5, 1.0]}, "ends at t = 1"),
        ({"step_size": -0.1}, "step_size=-0.1"),
        ({"n_steps": 2, "final": "fill"}, "final='fill'"),
        ({"n_steps": 2, "final": "last"}, "final='last'"),
        ({"n_steps": 2, "skip_finished": True}, "masked source"),
        ({"n_steps": 2, "seeds": torch.zeros(3)}, r"seeds must be int64 \[8\]"),
        ({"n_steps": 2, "seeds": torch.arange(8), "generator": torch.Generator()}, "not both"),
    ],
)
def test_bad_arguments_of_a_run(sampling: dict, message: str):
    flow = FLOWS["uniform"]
    with pytest.raises(ValueError, match=message):
        flow.solver("tc").sample(flow.source.init((8, 4)), **sampling)


def test_bad_starts():
    uniform, mask = FLOWS["uniform"], FLOWS["mask"]
    with pytest.raises(TypeError, match="float32"):
        uniform.solver("tc").sample(torch.zeros(8, 4), n_steps=2)
    with pytest.raises(ValueError, match="ids from 0 to 3"):
        uniform.solver("tc").sample(torch.arange(4).expand(8, -1), n_steps=2)
    with pytest.raises(ValueError, match="samples, tokens"):
        uniform.solver("tc").sample(torch.arange(3), n_steps=2)
    with pytest.raises(ValueError, match="nothing but the mask id 3"):
        mask.solver("tc").sample(torch.zeros(8, 4, dtype=torch.int64), n_steps=2)
    later = mask.solver("tc").sample(torch.zeros(8, 4, dtype=torch.int64), time_grid=[0.5, 0.6])
    assert (later.x == 0).all()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("theta_rk2", {"theta": 0.4}, "theta=0.4"),
        ("theta_trap", {"theta": 1.0}, "theta=1.0"),
        ("lc", {"j": 0}, "j=0"),
        ("lc", {"j": "all"}, "j='all'"),
        ("euler", {"rate": "joint"}, "rate='joint'"),
        ("tc", {"rate": "joint"}, "rate='joint'"),
        ("tau_leaping", {"mode": "cardinal"}, "mode='cardinal'"),
        ("first_hitting", {}, "masked source"),
    ],
)
def test_bad_options(name: str, options: dict, message: str):
    with pytest.raises(ValueError, match=message):
        FLOWS["uniform"].solver(name, **options)


class NoInverse:
    def kappa(self, t):
        return torch.as_tensor(t, dtype=torch.float64)

    def dkappa(self, t):
        return torch.ones_like(self.kappa(t))

    def log_one_minus_kappa(self, t):
        return torch.log1p(-self.kappa(t))

    def __call__(self, t):
        return type("At", (), {"alpha_t": t, "d_alpha_t": torch.ones_like(t)})


def test_what_does_not_belong_together():
    flow = FLOWS["uniform"]
    options = {"model": flow.oracle, "source": flow.source}
    with pytest.raises(TypeError, match="NoInverse has no kappa_inverse"):
        get_discrete_solver("lc", path=DiscretePath(NoInverse()), vocabulary_size=3, **options)
    euler = get_discrete_solver("euler", path=DiscretePath(NoInverse()), vocabulary_size=3, **options)
    with pytest.raises(TypeError, match="NoInverse has no kappa_inverse"):
        euler.sample(flow.source.init((4, 4)), n_steps=3)
    assert euler.sample(flow.source.init((4, 4)), n_steps=3, grid="uniform").nfe_calls == 3
    with pytest.raises(ValueError, match="vocabulary_size=4 does not fit"):
        get_discrete_solver("tc", path=flow.path, vocabulary_size=4, **options)
    with pytest.raises(TypeError, match="needs a DiscretePath"):
        get_discrete_solver("tc", path=flow.scheduler, vocabulary_size=3, **options)
    with pytest.raises(ValueError, match="no discrete solver 'heun'"):
        get_discrete_solver("heun")
    assert source("mask", 3).vocabulary_size == 4


def test_ordinal_leaps_warn():
    with pytest.warns(UserWarning, match="mode='categorical'"):
        FLOWS["mask"].solver("tau_leaping")
