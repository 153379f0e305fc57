import math

import pytest
import torch
from torch import Tensor

diffusers = pytest.importorskip("diffusers", reason="samplers of diffusers need the extra leyden[diffusion]")

from lightning_modules.f_dpm_solver.grids import Grid, make_grid  # noqa: E402
from lightning_modules.f_dpm_solver.samplers import get_sampler  # noqa: E402
from lightning_modules.f_dpm_solver.schedules import CosineVPSchedule, DiscreteVPSchedule, EDMSchedule, FlowLinearSchedule  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:diffusers")

NAMES = ("unipc", "deis", "ipndm")


def data(x: Tensor, a: float, s: float) -> Tensor:
    """The exact prediction for normal data of mean 0.3 and variance 0.25."""
    return 0.3 + 0.25 * a / (0.25 * a * a + s * s) * (x - 0.3 * a)


def solved(name: str, grid: Grid, x: Tensor, **options: object) -> Tensor:
    levels = dict(zip(grid.t.tolist(), zip(grid.a.tolist(), grid.s.tolist(), strict=True), strict=True))
    found = get_sampler(name, **options).sample(lambda state, t: data(state, *levels[t]), x, grid)
    assert found.nfe == grid.steps
    return found.x


def exact(grid: Grid, x: Tensor) -> Tensor:
    v = 0.25 * grid.a.square() + grid.s.square()
    return grid.a[-1] * 0.3 + (v[-1] / v[0]).sqrt() * (x - grid.a[0] * 0.3)


def level_grid(steps: int) -> Grid:
    return make_grid(EDMSchedule(), steps, "log_snr", sigma_max=10.0, sigma_min=0.05)


@pytest.mark.parametrize("name", NAMES)
def test_converges_to_the_exact_solution_in_second_order(name: str):
    x = torch.ones(2, 3, dtype=torch.float64)
    errors = [(solved(name, level_grid(steps), x) - exact(level_grid(steps), x)).abs().max().item() for steps in (20, 80)]
    assert errors[1] < errors[0] / 12  # order 2 gives 16
    ddim = (solved("ddim", level_grid(80), x) - exact(level_grid(80), x)).abs().max().item()
    assert errors[1] < ddim / 20


@pytest.mark.parametrize("name", NAMES)
def test_the_coordinates_do_not_matter(name: str):
    grid, x = level_grid(6), torch.ones(2, 3, dtype=torch.float64)
    t = grid.s / (grid.a + grid.s)
    flow = Grid(t, 1 - t, t, FlowLinearSchedule())
    ends = [math.hypot(*pair) for pair in ((flow.a[0], flow.s[0]), (flow.a[-1], flow.s[-1]))]
    assert torch.allclose(solved(name, flow, x * ends[0]) / ends[1], solved(name, grid, x), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "options", "kind", "settings"),
    [
        ("unipc", {"order": 2}, "UniPCMultistepScheduler", {"solver_order": 2}),
        (
            "unipc",
            {"order": 3, "lower_order_final": False},
            "UniPCMultistepScheduler",
            {"solver_order": 3, "lower_order_final": False},
        ),
        ("unipc", {"order": 2, "solver_type": "bh1"}, "UniPCMultistepScheduler", {"solver_order": 2, "solver_type": "bh1"}),
        ("deis", {"order": 3}, "DEISMultistepScheduler", {"solver_order": 3}),
    ],
)
def test_equals_the_scheduler_on_its_own_grid(name: str, options: dict, kind: str, settings: dict):
    final = {"final_sigmas_type": "sigma_min"} if kind.startswith("UniPC") else {}
    scheduler = getattr(diffusers, kind)(beta_schedule="scaled_linear", prediction_type="sample", **settings, **final)
    scheduler.set_timesteps(8)
    grid = make_grid(DiscreteVPSchedule(scheduler.alphas_cumprod), 8, "discrete")
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    latents = x
    for i, t in enumerate(scheduler.timesteps):
        latents = scheduler.step(data(latents, grid.a[i].item(), grid.s[i].item()), t, latents).prev_sample
    assert torch.allclose(solved(name, grid, x, **options), latents, rtol=0, atol=1e-5)


def test_ipndm_equals_its_scheduler_on_its_own_grid():
    scheduler = diffusers.IPNDMScheduler()
    scheduler.set_timesteps(8)
    a, s = scheduler.alphas.double()[:8], scheduler.betas.double()[:8]
    # its own grid begins without signal and ends without noise, so the points between are walked here
    grid = Grid(scheduler.timesteps[1:].double(), a[1:], s[1:], CosineVPSchedule())
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    latents = x
    scheduler.set_begin_index(1)
    for i in range(6):
        D = data(latents, grid.a[i].item(), grid.s[i].item())
        v = (grid.a[i] * latents - D) / grid.s[i]
        latents = scheduler.step(v, scheduler.timesteps[i + 1], latents).prev_sample
    assert torch.allclose(solved("ipndm", grid, x), latents, rtol=0, atol=1e-5)


def test_refuses_what_it_cannot_do():
    pure = make_grid(FlowLinearSchedule(), 5, "uniform_t", t_max=1.0, t_min=0.1)
    for name in NAMES:
        with pytest.raises(ValueError, match="alpha = 0"):
            solved(name, pure, torch.ones(2, 3))
    for name, options in (("unipc", {"order": 0}), ("unipc", {"solver_type": "bh3"}), ("deis", {"order": 4})):
        with pytest.raises(ValueError, match="order of|unknown solver_type"):
            get_sampler(name, **options)
