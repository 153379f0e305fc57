"""The samplers that a comparison knows by name, and how one is run with a given number of network calls (plain torch)."""

import warnings
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from lightning_modules.f_dpm_solver.denoiser import DataPrediction
from lightning_modules.f_dpm_solver.grids import Grid, make_grid
from lightning_modules.f_dpm_solver.reference import reference_solution
from lightning_modules.f_dpm_solver.samplers import SAMPLERS, get_sampler
from lightning_modules.f_dpm_solver.schedules import EDMSchedule

COMPETITORS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in SAMPLERS},
    "f_dpm_2": ("f_dpm", {"order": 2}),
    "f_dpm_3": ("f_dpm", {"order": 3}),
}
"""Name in the registry of samplers and options, by the name in a comparison."""


@dataclass(frozen=True)
class NoiseRange:
    """Noise levels of a comparison, from ``sigma_max`` down to ``sigma_min``, spaced as :func:`make_grid` says."""

    sigma_max: float = 80.0
    sigma_min: float = 0.002
    rho: float = 7.0
    kind: Literal["karras", "log_snr"] = "karras"

    def grid(self, steps: int) -> Grid:
        """Return N steps over all levels."""
        return make_grid(EDMSchedule(), steps, self.kind, sigma_max=self.sigma_max, sigma_min=self.sigma_min, rho=self.rho)

    def sample(self, name: str, denoiser: DataPrediction, noise: Tensor, nfe: int) -> tuple[Tensor, int]:
        """Follow a sampler from noise with at most ``nfe`` network calls.

        Args:
            name: one of ``COMPETITORS``.
            denoiser: the network, in variance-preserving coordinates.
            noise: standard normal numbers, ``[B, ...]``.
            nfe: network calls; a sampler with two calls a step makes ``nfe // 2`` steps.

        Returns:
            Samples in the coordinates of the data, at noise level ``sigma_min``, and the counted calls.
        """
        kind, options = COMPETITORS[name]
        sampler = get_sampler(kind, **options)
        grid = self.grid(sampler.steps_for(nfe))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*may diverge.*")  # a comparison shows whether it does
            found = sampler.sample(denoiser, noise, grid)
        return found.x / float(grid.a[-1]), found.nfe

    def reference(self, denoiser: DataPrediction, noise: Tensor, steps: int) -> Tensor:
        """Return the solution that all samplers converge to, in the coordinates of the data, by many steps in float64."""
        grid = self.grid(1)
        return reference_solution(denoiser, noise, grid, steps) / float(grid.a[-1])
