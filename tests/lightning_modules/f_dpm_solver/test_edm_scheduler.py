import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

diffusers = pytest.importorskip("diffusers", reason="schedulers of diffusers need the extra leyden[diffusion]")

from lightning_modules.f_dpm_solver.edm_scheduler import FDPMSolverEDMScheduler  # noqa: E402
from lightning_modules.f_dpm_solver.grids import Grid, make_grid  # noqa: E402
from lightning_modules.f_dpm_solver.samplers import get_sampler  # noqa: E402
from lightning_modules.f_dpm_solver.schedules import EDMSchedule  # noqa: E402


def network(seen: Tensor, told: Tensor) -> Tensor:
    """Return an output that depends on what the network sees and on what it is told."""
    return 0.7 * seen.sin() + 0.2 * told - 0.1


def data(y: Tensor, sigma: float, sign: int = 1) -> Tensor:
    """EDM's preconditioning around the network, in its own coordinates; sigma_data = 0.5."""
    told = torch.tensor(math.log(sigma) / 4, dtype=torch.float32)  # in the precision of timesteps
    total = sigma**2 + 0.25
    return 0.25 / total * y + sign * sigma * 0.5 / math.sqrt(total) * network(y / math.sqrt(total), told)


def noise() -> Tensor:
    return torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def pipeline(scheduler: FDPMSolverEDMScheduler, latents: Tensor, begin: int = 0) -> Tensor:
    for t in scheduler.timesteps[begin:]:
        output = network(scheduler.scale_model_input(latents, t), t)
        latents = scheduler.step(output, t, latents).prev_sample
    return latents


@pytest.mark.filterwarnings("ignore:F-DPM of order")
@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize(("kind", "sign"), [("epsilon", 1), ("v_prediction", -1)])
def test_equals_the_functional_sampler_in_variance_preserving_coordinates(order: int, kind: str, sign: int):
    scheduler = FDPMSolverEDMScheduler(solver_order=order, prediction_type=kind)
    scheduler.set_timesteps(10)
    grid = make_grid(EDMSchedule(), 10, "karras", sigma_max=80.0, sigma_min=0.002)
    found = get_sampler("f_dpm", order=order).sample(lambda x, t: data(x * math.hypot(1, t), t, sign), noise(), grid)
    made = pipeline(scheduler, noise() * scheduler.init_noise_sigma)
    assert torch.allclose(made, found.x / grid.a[-1], rtol=0, atol=1e-10)


def test_first_lookahead():
    scheduler = FDPMSolverEDMScheduler()
    scheduler.set_timesteps(10)
    first, second = scheduler.grid.s[:2].tolist()
    assert first == pytest.approx(80)
    assert scheduler.init_noise_sigma == pytest.approx(math.hypot(1, first) + second - first, abs=1e-12)


def test_preconditioning_is_that_of_diffusers():
    ours, theirs = FDPMSolverEDMScheduler(), diffusers.EDMEulerScheduler()
    sigma = torch.tensor(1.7, dtype=torch.float64)
    assert torch.allclose(ours.precondition_inputs(noise(), 1.7), theirs.precondition_inputs(noise(), sigma))
    assert torch.allclose(ours.precondition_noise(sigma), theirs.precondition_noise(sigma))
    for kind in ("epsilon", "v_prediction"):
        ours, theirs = FDPMSolverEDMScheduler(prediction_type=kind), diffusers.EDMEulerScheduler(prediction_type=kind)
        output = noise().flip(0)
        assert torch.allclose(ours.precondition_outputs(noise(), output, 1.7), theirs.precondition_outputs(noise(), output, sigma))


def test_warm_start():
    scheduler = FDPMSolverEDMScheduler()
    scheduler.set_timesteps(10)
    scheduler.set_begin_index(4)
    latents = scheduler.add_noise(torch.full_like(noise(), 0.4), noise(), scheduler.timesteps[4:5])
    rest = scheduler.grid.s[5:]
    assert torch.allclose(latents, 0.4 + rest[0] * noise(), rtol=0, atol=1e-5)
    y = 0.4 + rest[0] * noise()
    found = get_sampler("f_dpm", first_eps="model").sample(data, y, Grid(rest, torch.ones_like(rest), rest))
    assert torch.allclose(pipeline(scheduler, y, begin=4), found.x, rtol=0, atol=1e-10)


def test_grids():
    scheduler = FDPMSolverEDMScheduler(sigma_max=10.0, sigma_min=0.1, sigma_schedule="exponential")
    scheduler.set_timesteps(4)
    assert torch.allclose(scheduler.grid.s, torch.tensor([10, 10**0.5, 1, 10**-0.5, 0.1], dtype=torch.float64))
    assert torch.allclose(scheduler.timesteps, scheduler.grid.s[1:].log().float() / 4)
    scheduler.set_timesteps(sigmas=[5.0, 2.0, 0.5])
    assert scheduler.grid.s.tolist() == [5.0, 2.0, 0.5]
    assert len(scheduler.timesteps) == 2


def test_saving_loading_and_taking_over(tmp_path: Path):
    scheduler = FDPMSolverEDMScheduler(sigma_data=0.7, final="data", solver_order=2)
    scheduler.save_pretrained(tmp_path)
    loaded = FDPMSolverEDMScheduler.from_pretrained(tmp_path)
    assert (loaded.config.sigma_data, loaded.config.final, loaded.config.solver_order) == (0.7, "data", 2)
    other = diffusers.EDMDPMSolverMultistepScheduler(sigma_max=40.0, rho=5.0, solver_order=3, prediction_type="v_prediction")
    ours = FDPMSolverEDMScheduler.from_config(other.config)
    assert (ours.config.sigma_max, ours.config.rho, ours.config.prediction_type) == (40.0, 5.0, "v_prediction")
    assert ours.config.solver_order == 1
    with pytest.raises(ValueError, match="cannot take over"):
        FDPMSolverEDMScheduler.from_config(diffusers.DDIMScheduler().config)


def test_bad_options():
    for options, message in (
        ({"sigma_min": 0.0}, "use sigma_min > 0"),
        ({"sigma_data": 0.0}, "sigma_data=0.0"),
        ({"prediction_type": "sample"}, "prediction_type='sample'"),
        ({"sigma_schedule": "linear"}, "sigma_schedule='linear'"),
    ):
        with pytest.raises(ValueError, match=message):
            FDPMSolverEDMScheduler(**options)
    with pytest.raises(ValueError, match="N = 0"):
        FDPMSolverEDMScheduler().set_timesteps(0)
    with pytest.raises(ValueError, match="sigma_min > 0"):
        FDPMSolverEDMScheduler().set_timesteps(sigmas=[5.0, 1.0, 0.0])
    with pytest.raises(ValueError, match="rise strictly"):
        FDPMSolverEDMScheduler().set_timesteps(sigmas=[1.0, 5.0])
