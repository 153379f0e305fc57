import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

diffusers = pytest.importorskip("diffusers", reason="schedulers of diffusers need the extra leyden[diffusion]")

from lightning_modules.f_dpm_solver.grids import Grid, make_grid  # noqa: E402
from lightning_modules.f_dpm_solver.samplers import get_sampler  # noqa: E402
from lightning_modules.f_dpm_solver.scheduler import FDPMSolverScheduler  # noqa: E402
from lightning_modules.f_dpm_solver.schedules import DiscreteVPSchedule  # noqa: E402

LATENT = {"beta_start": 0.0015, "beta_end": 0.0195, "beta_schedule": "scaled_linear"}
PROJECT = Path(__file__).parents[3]


def data(x: Tensor, a: float, s: float) -> Tensor:
    """Return the data prediction of a network that is not linear, for points around 0.3."""
    return 0.3 + 0.25 * a / (0.25 * a * a + s * s) * (x - 0.3 * a) + 0.1 * x.sin()


def output(x: Tensor, a: float, s: float, kind: str) -> Tensor:
    """Return what a network of a prediction type returns."""
    found, noise = data(x, a, s), (x - a * data(x, a, s)) / s
    return {"epsilon": noise, "sample": found, "v_prediction": a * noise - s * found}[kind]


def noise(dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)


def points(grid: Grid) -> dict[float, tuple[float, float]]:
    return {t: (a, s) for t, a, s in zip(grid.t.tolist(), grid.a.tolist(), grid.s.tolist(), strict=True)}


def pipeline(scheduler: FDPMSolverScheduler, latents: Tensor, begin: int = 0) -> Tensor:
    """Do what pipelines of diffusers do."""
    for i, t in enumerate(scheduler.timesteps[begin:], start=begin):
        a, s = scheduler.grid.a[i + 1].item(), scheduler.grid.s[i + 1].item()
        seen = scheduler.scale_model_input(latents, t)
        latents = scheduler.step(output(seen, a, s, scheduler.config.prediction_type), t, latents, return_dict=False)[0]
    return latents


def functional(grid: Grid, x: Tensor, **options: object) -> Tensor:
    levels = points(grid)
    return get_sampler("f_dpm", **options).sample(lambda state, t: data(state, *levels[t]), x, grid).x


@pytest.mark.filterwarnings("ignore:F-DPM of order")
@pytest.mark.parametrize("steps", [1, 5, 10])
@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("kind", ["epsilon", "sample", "v_prediction"])
def test_equals_the_functional_sampler(steps: int, order: int, kind: str):
    scheduler = FDPMSolverScheduler(**LATENT, solver_order=order, prediction_type=kind)
    scheduler.set_timesteps(steps)
    made = pipeline(scheduler, noise() * scheduler.init_noise_sigma)
    grid = make_grid(DiscreteVPSchedule(scheduler.alphas_cumprod), steps, "discrete")
    assert len(scheduler.timesteps) == steps
    assert torch.allclose(made, functional(grid, noise(), order=order), rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore:F-DPM of order")
@pytest.mark.parametrize(
    "options",
    [
        {"timestep_spacing": "leading", "steps_offset": 1},
        {"timestep_spacing": "trailing"},
        {"use_karras_sigmas": True},
        {"rescale_betas_zero_snr": True},
        {"rescale_betas_zero_snr": True, "solver_order": 3},
        {"solver_order": 3, "lower_order_final": True},
        {"final": "data"},
    ],
)
def test_every_grid_and_option_equals_the_functional_sampler(options: dict):
    scheduler = FDPMSolverScheduler(**LATENT, **options)
    scheduler.set_timesteps(6)
    own = {name: options[name] for name in ("final", "lower_order_final") if name in options}
    wanted = functional(scheduler.grid, noise(), order=options.get("solver_order", 1), **own)
    assert torch.allclose(pipeline(scheduler, noise() * scheduler.init_noise_sigma), wanted, rtol=0, atol=1e-12)


def test_grids_hold_one_point_more_than_timesteps():
    scheduler = FDPMSolverScheduler(**LATENT)
    wanted = {
        "linspace": [999, 799, 599, 400, 200, 0],
        "leading": [831, 665, 499, 333, 167, 1],
        "trailing": [999, 799, 599, 399, 199, 0],
    }
    for spacing, times in wanted.items():
        scheduler = FDPMSolverScheduler(**LATENT, timestep_spacing=spacing, steps_offset=1)
        scheduler.set_timesteps(5)
        assert scheduler.grid.t.tolist() == times, spacing
        assert scheduler.timesteps.tolist() == times[1:]
        assert scheduler.timesteps.dtype == torch.int64


def test_karras_levels_are_told_between_whole_times():
    scheduler = FDPMSolverScheduler(**LATENT, use_karras_sigmas=True)
    scheduler.set_timesteps(4)
    ratio = (1 - scheduler.alphas_cumprod.double()).div(scheduler.alphas_cumprod.double()).sqrt()
    ends = [ratio[-1].item() ** (1 / 7), ratio[0].item() ** (1 / 7)]
    wanted = torch.tensor([(ends[0] + i / 4 * (ends[1] - ends[0])) ** 7 for i in range(5)], dtype=torch.float64)
    assert torch.allclose(scheduler.grid.s / scheduler.grid.a, wanted, rtol=1e-9)
    assert scheduler.timesteps[-1].item() == pytest.approx(0, abs=1e-6)
    for told, level in zip(scheduler.timesteps[:-1].tolist(), wanted[1:-1], strict=True):
        assert told != int(told)
        assert ratio[int(told)] < level < ratio[int(told) + 1]


def test_float32_and_half_precision():
    scheduler = FDPMSolverScheduler(**LATENT)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 0.05)):
        scheduler.set_timesteps(5)
        wanted = functional(scheduler.grid, noise())
        latents = noise(dtype) * scheduler.init_noise_sigma
        if dtype == torch.float32:
            made = pipeline(scheduler, latents)
        else:
            with pytest.warns(UserWarning, match="bfloat16 lose"):
                made = pipeline(scheduler, latents)
        assert made.dtype == dtype
        assert scheduler.state.dtype == torch.float32
        assert (made.double() - wanted).abs().max() < tolerance


@pytest.mark.filterwarnings("ignore:F-DPM of order")
@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("begin", [0, 1, 4])
def test_warm_start_equals_a_sampler_that_asks_the_model_first(order: int, begin: int):
    scheduler = FDPMSolverScheduler(**LATENT, solver_order=order)
    scheduler.set_timesteps(10)
    scheduler.set_begin_index(begin)
    latents = scheduler.add_noise(torch.full_like(noise(), 0.4), noise(), scheduler.timesteps[begin : begin + 1])
    grid = scheduler.grid
    assert torch.allclose(latents, grid.a[begin + 1] * 0.4 + grid.s[begin + 1] * noise(), rtol=0, atol=1e-12)
    given = latents.clone()
    made = pipeline(scheduler, latents, begin)
    rest = Grid(*(each[begin + 1 :] for each in (grid.t, grid.a, grid.s)))
    assert torch.allclose(made, functional(rest, given, order=order, first_eps="model"), rtol=0, atol=1e-12)
    assert torch.equal(latents, given)


def test_a_warm_start_at_the_last_timestep_keeps_the_state():
    scheduler = FDPMSolverScheduler(**LATENT)
    scheduler.set_timesteps(4)
    assert torch.equal(pipeline(scheduler, noise(), begin=3), noise())


def test_a_start_in_the_middle_without_begin_index_is_found_by_the_timestep():
    scheduler = FDPMSolverScheduler(**LATENT)
    scheduler.set_timesteps(6)
    made = pipeline(scheduler, noise(), begin=2)
    scheduler.set_timesteps(6)
    scheduler.set_begin_index(2)
    assert torch.equal(made, pipeline(scheduler, noise(), begin=2))


def test_add_noise_takes_a_timestep_a_sample():
    scheduler = FDPMSolverScheduler(**LATENT)
    times = torch.tensor([0, 10, 500, 999])
    signal = scheduler.alphas_cumprod.double()[times].view(4, 1, 1)
    wanted = signal.sqrt() * 0.4 + (1 - signal).sqrt() * noise()
    assert torch.allclose(scheduler.add_noise(torch.full_like(noise(), 0.4), noise(), times), wanted, rtol=0, atol=1e-7)


def test_the_first_lookahead_is_noise_rescaled_and_the_state_stays_behind():
    scheduler = FDPMSolverScheduler(**LATENT)
    scheduler.set_timesteps(5)
    grid = scheduler.grid
    k_0 = grid.s[1] + grid.a[1] / grid.a[0] * (1 - grid.s[0])
    assert scheduler.init_noise_sigma == pytest.approx(k_0.item(), abs=1e-14)
    assert abs(scheduler.init_noise_sigma - 1) > 1e-4
    latents = noise() * scheduler.init_noise_sigma
    a, s = grid.a[1].item(), grid.s[1].item()
    made = scheduler.step(output(latents, a, s, "epsilon"), scheduler.timesteps[0], latents)
    D = data(latents, a, s)
    ratio = grid.s[1] / grid.s[0]
    assert torch.allclose(made.pred_original_sample, D, rtol=0, atol=1e-12)
    assert torch.allclose(scheduler.state, ratio * noise() + (grid.a[1] - grid.a[0] * ratio) * D, rtol=0, atol=1e-12)
    assert not torch.allclose(scheduler.state, made.prev_sample, atol=1e-3)
    assert scheduler.step_index == 1


def test_saving_and_loading(tmp_path: Path):
    scheduler = FDPMSolverScheduler(**LATENT, solver_order=2, final="data", timestep_spacing="leading")
    scheduler.save_pretrained(tmp_path)
    loaded = FDPMSolverScheduler.from_pretrained(tmp_path)
    assert isinstance(loaded, FDPMSolverScheduler)
    assert {k: v for k, v in loaded.config.items() if k[0] != "_"} == {k: v for k, v in scheduler.config.items() if k[0] != "_"}
    assert loaded.config.solver_order == 2
    assert FDPMSolverScheduler.from_config(scheduler.config).config.final == "data"


def test_takes_over_the_schedule_of_another_scheduler_but_not_its_order(tmp_path: Path):
    other = diffusers.DPMSolverMultistepScheduler(
        **LATENT, prediction_type="v_prediction", solver_order=3, use_karras_sigmas=True, timestep_spacing="leading"
    )
    ours = FDPMSolverScheduler.from_config(other.config)
    assert torch.equal(ours.alphas_cumprod, other.alphas_cumprod)
    assert ours.config.prediction_type == "v_prediction"
    assert ours.config.use_karras_sigmas
    assert ours.config.timestep_spacing == "leading"
    assert ours.config.solver_order == 1
    assert FDPMSolverScheduler.from_config(other.config, solver_order=2).config.solver_order == 2
    other.save_pretrained(tmp_path)
    assert FDPMSolverScheduler.from_pretrained(tmp_path).config.solver_order == 1
    back = diffusers.DPMSolverMultistepScheduler.from_config(ours.config)
    assert torch.equal(back.alphas_cumprod, other.alphas_cumprod)
    assert len(ours) == 1000
    assert ours.compatibles


@pytest.mark.parametrize("name", ["FlowMatchEulerDiscreteScheduler", "EDMEulerScheduler"])
def test_schedules_of_another_kind_are_refused(name: str, tmp_path: Path):
    other = getattr(diffusers, name)()
    with pytest.raises(ValueError, match="cannot take over the schedule of this configuration"):
        FDPMSolverScheduler.from_config(other.config)
    other.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=f"cannot take over the schedule of {name}"):
        FDPMSolverScheduler.from_pretrained(tmp_path)


def test_flows_are_refused_by_name():
    config = diffusers.UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True).config
    with pytest.raises(ValueError, match="get_sampler"):
        FDPMSolverScheduler.from_config(config)
    with pytest.raises(ValueError, match="prediction_type='flow_prediction'"):
        FDPMSolverScheduler(prediction_type="flow_prediction")


def test_set_timesteps_forgets_and_takes_points():
    scheduler = FDPMSolverScheduler(**LATENT)
    scheduler.set_timesteps(5)
    first = pipeline(scheduler, noise() * scheduler.init_noise_sigma)
    scheduler.set_timesteps(timesteps=[999, 799, 599, 400, 200, 0])
    assert scheduler.step_index is None
    assert torch.equal(pipeline(scheduler, noise() * scheduler.init_noise_sigma), first)


def test_misuse_is_one_clear_error():
    scheduler = FDPMSolverScheduler(**LATENT)
    with pytest.raises(RuntimeError, match="set_timesteps first"):
        scheduler.step(noise(), 999, noise())
    with pytest.raises(RuntimeError, match="init_noise_sigma"):
        _ = scheduler.init_noise_sigma
    scheduler.set_timesteps(2)
    with pytest.raises(RuntimeError, match="no state before"):
        _ = scheduler.state
    with pytest.raises(ValueError, match="timestep 3 is none"):
        scheduler.step(noise(), 3, noise())
    first, second = scheduler.timesteps
    scheduler.step(noise(), first, noise())
    with pytest.raises(RuntimeError, match="call set_timesteps before you sample anything else"):
        scheduler.step(noise()[:2], second, noise()[:2])
    with pytest.raises(RuntimeError, match="float32"):
        scheduler.step(noise().float(), second, noise().float())
    scheduler.step(noise(), second, noise())
    with pytest.raises(RuntimeError, match="all 2 timesteps are done"):
        scheduler.step(noise(), second, noise())


@pytest.mark.parametrize(("steps", "message"), [(0, "N = 0"), (1500, "N = 1500"), (None, "either num_inference_steps")])
def test_numbers_of_steps_that_do_not_fit(steps: int | None, message: str):
    with pytest.raises(ValueError, match=message):
        FDPMSolverScheduler(**LATENT).set_timesteps(steps)


def test_options_that_do_not_fit():
    for options, message in (
        ({"solver_order": 0}, "at least 1"),
        ({"final": "both"}, "final='both'"),
        ({"timestep_spacing": "log"}, "timestep_spacing='log'"),
        ({"prediction_type": "score"}, "prediction_type='score'"),
    ):
        with pytest.raises(ValueError, match=message):
            FDPMSolverScheduler(**options)
    with pytest.raises(ValueError, match="between 0 and 999"):
        FDPMSolverScheduler().set_timesteps(timesteps=[1000, 0])
    with pytest.warns(UserWarning, match="may diverge with N = 5"):
        FDPMSolverScheduler(solver_order=2).set_timesteps(5)


def test_a_network_that_returns_nan_is_named_with_its_step():
    scheduler = FDPMSolverScheduler(**LATENT)
    scheduler.set_timesteps(4)
    latents = noise()
    sigma = (scheduler.grid.s[2] / scheduler.grid.a[2]).item()
    for i, t in enumerate(scheduler.timesteps[:-1]):
        latents = scheduler.step(latents * (math.nan if i == 1 else 0.9), t, latents).prev_sample
    with pytest.raises(RuntimeError, match=rf"step index 1 \(sigma = {sigma:.6g}\)"):
        scheduler.step(latents, scheduler.timesteps[-1], latents)


def test_without_diffusers_the_extra_is_named_and_the_rest_imports():
    code = """
import sys
sys.modules["diffusers"] = None
from lightning_modules.f_dpm_solver.samplers import get_sampler
get_sampler("f_dpm")
for build in (lambda: get_sampler("unipc"), lambda: __import__("lightning_modules").FDPMSolverScheduler):
    try:
        build()
    except ImportError as error:
        assert "pip install 'leyden[diffusion]'" in str(error), error
    else:
        raise SystemExit("no error")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
