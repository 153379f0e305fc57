import math

import pytest
import torch
from diffusers import DPMSolverMultistepScheduler
from scalar_gaussian import ORACLE, START, end, even_grid, exact_end, slope

from lightning_modules.f_dpm_solver.forward_ideal import ForwardIdeal
from lightning_modules.f_dpm_solver.gaussian_mixture import ring_mixture
from lightning_modules.f_dpm_solver.grids import Grid, make_grid
from lightning_modules.f_dpm_solver.reference import reference_solution
from lightning_modules.f_dpm_solver.samplers import SAMPLERS, get_sampler, steps_for
from lightning_modules.f_dpm_solver.schedules import DiscreteVPSchedule, EDMSchedule, FlowLinearSchedule

pytestmark = pytest.mark.filterwarnings("ignore:F-DPM of order")

EDM = EDMSchedule()
MIXTURE = ring_mixture(EDM)
FAST = ["ddim", "f_dpm", "eps_ms2", "eps_ms3", "dpmpp_1s", "dpmpp_2s", "dpmpp_2m", "dpmpp_3m", "unipc_code", "heun"]
TWO_CALLS = {"dpmpp_2s", "heun"}
STEPS = (40, 80, 160)


def noise(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def recorded(denoiser, times):
    def call(x, t):
        times.append(t)
        return denoiser(x, t)

    return call


@pytest.mark.parametrize(
    ("name", "order", "last"),
    [
        ("dpmpp_2m", 2, -3.108e-5),
        ("dpmpp_2s", 2, 3.289e-5),
        ("eps_ms2", 2, 5.666e-5),
        ("heun", 2, -6.720e-5),
        ("unipc_code", 3, -1.916e-6),
        ("dpmpp_1s", 1, 3.979e-3),
    ],
)
def test_orders_of_convergence(name, order, last):
    errors = [exact_end() - end(name, steps) for steps in STEPS]
    assert slope(errors) == pytest.approx(order, abs=0.1)
    assert errors[-1] == pytest.approx(last, rel=1e-3)


def test_higher_orders_are_closer():
    errors = {name: abs(exact_end() - end(name, 160)) for name in FAST}
    assert errors["dpmpp_3m"] < 0.5 * errors["dpmpp_2m"]
    assert errors["eps_ms3"] < 0.1 * errors["eps_ms2"]


def test_errors_on_a_mixture_are_opposite():
    mixture, x = ring_mixture(EDM, std=0.35), noise(200, 2)
    reference = reference_solution(mixture, x, even_grid(1), steps=400)
    cosines, sizes = {}, {}
    for steps in (5, 10, 20, 40):
        ddim, ours = (get_sampler(name).sample(mixture, x, even_grid(steps)).x - reference for name in ("ddim", "f_dpm"))
        cosines[steps] = torch.cosine_similarity(ddim.flatten(), ours.flatten(), dim=0).item()
        sizes[steps] = [error.square().sum(dim=1).mean().sqrt().item() for error in (ddim, ours, (ddim + ours) / 2)]
    assert cosines[5] == pytest.approx(-0.973, abs=0.01)
    assert cosines[10] == pytest.approx(-0.994, abs=0.003)
    assert cosines[20] == pytest.approx(-0.998, abs=0.001)
    assert cosines[40] < -0.999
    assert sizes[10] == pytest.approx([0.100, 0.066, 0.018], rel=0.1)
    assert sizes[40] == pytest.approx([0.0253, 0.0226, 0.00138], rel=0.1)


def test_a_small_budget_orders_samplers_on_a_mixture():
    x = noise(200, 2)
    reference = reference_solution(MIXTURE, x, make_grid(EDM, 1), steps=400)
    error = {
        name: (get_sampler(name).sample(MIXTURE, x, make_grid(EDM, 5)).x - reference).square().sum(1).mean().sqrt().item()
        for name in ("ddim", "f_dpm", "eps_ms2", "eps_ms3", "dpmpp_2m", "unipc_code")
    }
    expected = {"ddim": 0.346, "f_dpm": 0.121, "eps_ms2": 0.197, "eps_ms3": 0.127, "dpmpp_2m": 0.241, "unipc_code": 0.143}
    assert error == pytest.approx(expected, rel=0.15)


class ExplodingEDM(EDMSchedule):
    """EDM's own coordinates, in which the signal keeps its size."""

    def alpha(self, t):
        return torch.ones_like(super().alpha(t))

    def sigma(self, t):
        return torch.as_tensor(t, dtype=torch.float64)


@pytest.mark.parametrize("name", FAST)
def test_coordinates_do_not_matter(name):
    preserving, exploding = (make_grid(schedule, 6, sigma_max=20.0) for schedule in (EDM, ExplodingEDM()))
    x = noise(30, 2)
    found = get_sampler(name).sample(MIXTURE, x, preserving).x / preserving.a[-1]
    oracle = ring_mixture(ExplodingEDM())
    other = get_sampler(name).sample(oracle, x / preserving.a[0], exploding).x
    assert (found - other).abs().max() < 1e-10


@pytest.mark.parametrize(("name", "order"), [("ddim", 1), ("dpmpp_2m", 2), ("dpmpp_3m", 3)])
@pytest.mark.parametrize("steps", [5, 10])
@pytest.mark.filterwarnings("ignore:__array__ implementation")
def test_same_as_diffusers(name, order, steps):
    peer = DPMSolverMultistepScheduler(
        beta_start=0.0015,
        beta_end=0.0195,
        beta_schedule="scaled_linear",
        algorithm_type="dpmsolver++",
        timestep_spacing="linspace",
        final_sigmas_type="sigma_min",
        lower_order_final=False,
        euler_at_final=False,
        solver_order=order,
    )
    schedule = DiscreteVPSchedule(peer.alphas_cumprod)
    grid, mixture, x = make_grid(schedule, steps, "discrete"), ring_mixture(schedule), noise(50, 2)
    peer.set_timesteps(steps)
    assert peer.timesteps.tolist() == grid.t[:-1].tolist()
    assert torch.allclose(peer.sigmas.double(), grid.s / grid.a, rtol=1e-6)
    peer.sigmas = grid.s / grid.a
    state = x
    for t, a, s in zip(peer.timesteps, grid.a, grid.s, strict=False):
        state = peer.step((state - a * mixture(state, float(t))) / s, t, state).prev_sample
    assert (get_sampler(name).sample(mixture, x, grid).x - state).abs().max() < 1e-6


@pytest.mark.parametrize("name", FAST)
def test_calls_and_their_times(name):
    times, grid = [], even_grid(4)
    output = get_sampler(name).sample(recorded(ORACLE, times), START, grid)
    assert output.nfe == len(times) == (8 if name in TWO_CALLS else 4)
    t = grid.t.tolist()
    if name == "dpmpp_2s":
        middles = [math.sqrt(left * right) for left, right in zip(t, t[1:], strict=False)]
        assert times == pytest.approx([time for pair in zip(t, middles, strict=False) for time in pair], rel=1e-12)
    elif name == "heun":
        assert times == [time for pair in zip(t, t[1:], strict=False) for time in pair]
    else:
        assert times == (t[1:] if name == "f_dpm" else t[:-1])
    assert steps_for(name, 9) == (4 if name in TWO_CALLS else 9)


@pytest.mark.parametrize("name", FAST)
def test_one_step_and_the_trajectory(name):
    x = noise(3, 2)
    one = get_sampler(name).sample(MIXTURE, x, make_grid(EDM, 1))
    assert one.x.isfinite().all()
    assert one.trajectory is None
    many = get_sampler(name).sample(MIXTURE, x, make_grid(EDM, 5), return_trajectory=True)
    assert many.trajectory.shape == (6, 3, 2)
    assert torch.equal(many.trajectory[0], x)
    assert torch.equal(many.trajectory[-1], many.x)
    assert len({state.sum().item() for state in many.trajectory}) == 6


@pytest.mark.parametrize("name", FAST)
def test_the_split_in_batches_does_not_matter_and_noise_stays_as_given(name):
    x = noise(64, 2, dtype=torch.float32)
    given, grid = x.clone(), make_grid(EDM, 5)
    whole = get_sampler(name).sample(MIXTURE, x, grid)
    parts = torch.cat([get_sampler(name).sample(MIXTURE, part, grid).x for part in x.split(16)])
    assert (whole.x - parts).abs().max() < 1e-6
    assert torch.equal(x, given)
    assert torch.equal(get_sampler(name).sample(MIXTURE, x, grid).x, whole.x)
    exact = get_sampler(name).sample(MIXTURE, x.double(), grid).x
    assert whole.x.dtype == torch.float32
    assert (whole.x - exact).abs().max() < 2e-3


@pytest.mark.parametrize("name", ["ddim", "f_dpm", "eps_ms2", "dpmpp_2m", "dpmpp_3m"])
def test_a_flow_starts_from_pure_noise(name):
    schedule = FlowLinearSchedule()
    mixture, x = ring_mixture(schedule), noise(50, 2)
    pure, almost = (make_grid(schedule, 20, "uniform_t", t_max=t, t_min=0.02) for t in (1.0, 1 - 1e-9))
    found, near = (get_sampler(name).sample(mixture, x, grid).x for grid in (pure, almost))
    assert found.isfinite().all()
    assert (found - near).abs().max() < 1e-4


@pytest.mark.parametrize("name", ["dpmpp_2s", "heun", "unipc_code"])
def test_a_start_without_signal_is_refused(name):
    with pytest.raises(ValueError, match="cannot start where alpha = 0"):
        get_sampler(name).sample(MIXTURE, START, make_grid(FlowLinearSchedule(), 4, "uniform_t"))


def test_ends_without_noise():
    a, s = torch.tensor([0.1, 0.8, 1.0]).double(), torch.tensor([0.99, 0.6, 0.0]).double()
    grid = Grid(s / a, a, s, EDM)
    for name in sorted(set(FAST) - {"ddim", "dpmpp_1s", "heun", "f_dpm"}):
        with pytest.raises(ValueError, match="cannot end where sigma = 0"):
            get_sampler(name).sample(MIXTURE, noise(1, 2), grid)
    ddim = get_sampler("ddim").sample(MIXTURE, noise(1, 2), grid)
    assert torch.allclose(ddim.x, ddim.data_prediction)
    times = []
    heun = get_sampler("heun").sample(recorded(MIXTURE, times), noise(1, 2), grid)
    assert torch.allclose(heun.x, heun.data_prediction)
    assert heun.nfe == len(times) == 3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened(dtype):
    x = noise(4, 2, dtype=torch.float32).to(dtype)
    with pytest.warns(UserWarning, match="sampling in float32"):
        found = get_sampler("f_dpm").sample(MIXTURE, x, make_grid(EDM, 5)).x
    assert torch.equal(found, get_sampler("f_dpm").sample(MIXTURE, x.float(), make_grid(EDM, 5)).x)


@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_a_network_that_breaks_is_named_with_its_step(broken):
    grid = make_grid(EDM, 6)
    times = []

    def denoiser(x, t):
        times.append(t)
        return MIXTURE(x, t) if len(times) != 4 else x.index_fill(0, torch.tensor([1]), broken)

    with pytest.raises(RuntimeError, match=rf"NaN or Inf in call 4 of 6, at t = {grid.t[4]:.6g} \(point 4 of 6, sigma = "):
        get_sampler("f_dpm").sample(denoiser, noise(3, 2), grid)


def test_a_denoiser_must_keep_shape_and_precision():
    for wrong in (lambda x, t: x[:1], lambda x, t: x.float()):
        with pytest.raises(ValueError, match="return shape and precision of the state"):
            get_sampler("ddim").sample(wrong, noise(3, 2), make_grid(EDM, 2))


def test_gradients_flow_to_the_noise():
    x = noise(2, 2).requires_grad_()
    for name in FAST:
        (gradient,) = torch.autograd.grad(get_sampler(name).sample(MIXTURE, x, even_grid(4)).x.sum(), x)
        assert gradient.abs().min() > 0


def test_an_implicit_step_that_does_not_contract_is_reported():
    with pytest.raises(RuntimeError, match="implicit step 1 of 1 .* did not converge in 20 iterations"):
        ForwardIdeal(max_iterations=20).sample(lambda x, t: -3 * x, START, even_grid(1))
    for options in ({"tolerance": 0.0}, {"max_iterations": 0}):
        with pytest.raises(ValueError, match="need tolerance > 0"):
            ForwardIdeal(**options)


def test_the_implicit_rule_holds_where_it_ends():
    grid = even_grid(3)
    output = get_sampler("forward_ideal").sample(ORACLE, START, grid, return_trajectory=True)
    for i in range(3):
        c = grid.s[i + 1] / grid.s[i]
        data = ORACLE(output.trajectory[i + 1], grid.numbers.t[i + 1])
        implied = c * output.trajectory[i] + (grid.a[i + 1] - grid.a[i] * c) * data
        assert (implied - output.trajectory[i + 1]).abs().max() < 1e-11


@pytest.mark.parametrize(
    ("name", "options"), [("eps_multistep", {"order": 0}), ("unipc_code", {"order": 1}), ("dpmpp_2m", {"order": 4})]
)
def test_bad_orders_are_refused(name, options):
    with pytest.raises(ValueError, match="order"):
        get_sampler(name, **options)


def test_names_and_budgets():
    assert set(FAST) | {"eps_multistep", "forward_ideal", "unipc", "deis", "ipndm"} == set(SAMPLERS)
    with pytest.raises(ValueError, match=r"unknown sampler 'ddpm': choose one of .*f_dpm"):
        get_sampler("ddpm")
    with pytest.raises(ValueError, match="Heun needs 2 network calls a step, got a budget of 1"):
        steps_for("heun", 1)
    assert steps_for("f_dpm", 7, order=2) == 7
    assert steps_for("f_dpm", 7, first_eps="model") == 6
