"""Normal data N(0.3, 0.25) on a line and a start at 1: every sampler's exact end is known."""

from functools import cache

import torch

from lightning_modules.f_dpm_solver.gaussian_mixture import GaussianOracle
from lightning_modules.f_dpm_solver.grids import Grid, make_grid
from lightning_modules.f_dpm_solver.samplers import get_sampler
from lightning_modules.f_dpm_solver.schedules import EDMSchedule

MEAN, VARIANCE = 0.3, 0.25
SIGMA_MAX, SIGMA_MIN = 10.0, 0.05
EXACT = 0.7883291297
ORACLE = GaussianOracle(torch.tensor([MEAN], dtype=torch.float64), torch.tensor([[VARIANCE]], dtype=torch.float64), EDMSchedule())
START = torch.ones(1, 1, dtype=torch.float64)


def even_grid(steps: int) -> Grid:
    return make_grid(EDMSchedule(), steps, "log_snr", sigma_max=SIGMA_MAX, sigma_min=SIGMA_MIN)


@cache
def end(name: str, steps: int, **options) -> float:
    """The state of one sampler at the end of the grid."""
    return get_sampler(name, **options).sample(ORACLE, START, even_grid(steps)).x.item()


def exact_end() -> float:
    return ORACLE.flow(START, SIGMA_MAX, SIGMA_MIN).item()


def slope(errors: list[float]) -> float:
    """Order of convergence between the last two of runs with doubled steps."""
    return torch.tensor(errors).abs().log2()[-2:].diff().neg().item()
