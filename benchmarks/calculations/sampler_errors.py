"""Errors of samplers on a mixture of Gaussians against its exact flow."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from lightning_modules.f_dpm_solver.competitors import NoiseRange


@dataclass(frozen=True)
class Setting:
    """Six Gaussians on a ring and a grid of noise levels.

    Attributes:
        std: standard deviation of each Gaussian.
        kind: spacing of the noise levels.
        sigma_max, sigma_min: first and last noise level.
        points: points that are followed.
    """

    std: float
    kind: Any
    sigma_max: float
    sigma_min: float
    points: int

    @property
    def noise_range(self) -> "NoiseRange":
        from lightning_modules.f_dpm_solver.competitors import NoiseRange

        return NoiseRange(self.sigma_max, self.sigma_min, kind=self.kind)


NARROW = Setting(0.15, "karras", 80.0, 0.002, 2_000)
WIDE = Setting(0.35, "log_snr", 10.0, 0.05, 200)
CALLS, SIGN_CALLS = (5, 6, 8, 10, 20, 40, 80), (5, 10, 20, 40)
REFERENCE_STEPS = 1_500
MEAN = "mean"


def sampler_errors(variant: str, seed: int) -> Mapping[str, float]:
    """Follow a sampler on the narrow Gaussians with several numbers of network calls.

    Args:
        variant: name of the sampler in a comparison.
        seed: seed of the initial noise.

    Returns:
        For each number n of calls ``rmse_at_n``, the root mean square distance of the points from where they belong, and
        ``calls_at_n``, the calls that were counted.
    """
    errors = {calls: error_and_calls(NARROW, variant, seed, calls) for calls in CALLS}
    rmse = {f"rmse_at_{calls}": root_mean_square(error) for calls, (error, _) in errors.items()}
    return {**rmse, **{f"calls_at_{calls}": float(counted) for calls, (_, counted) in errors.items()}}


def error_signs(variant: str, seed: int) -> Mapping[str, float]:
    """Compare the errors of a sampler on the wide Gaussians with those of DDIM.

    Args:
        variant: name of the sampler in a comparison, or ``mean``: the mean of what DDIM and F-DDIM find.
        seed: seed of the initial noise.

    Returns:
        For each number n of calls ``rmse_at_n`` as above, and ``cosine_at_n``, the cosine of all errors with those of DDIM.
    """
    found: dict[str, float] = {}
    for calls in SIGN_CALLS:
        error, ddim = signed_errors(variant, seed, calls), signed_errors("ddim", seed, calls)
        found[f"rmse_at_{calls}"] = root_mean_square(error)
        found[f"cosine_at_{calls}"] = float((error * ddim).sum() / (error.norm() * ddim.norm()))
    return found


def signed_errors(variant: str, seed: int, calls: int) -> "Tensor":
    """Return what a sampler finds minus the exact solution on the wide Gaussians, float64 ``[points, 2]``."""
    if variant == MEAN:
        return (signed_errors("ddim", seed, calls) + signed_errors("f_dpm", seed, calls)) / 2
    return error_and_calls(WIDE, variant, seed, calls)[0]


def root_mean_square(error: "Tensor") -> float:
    """Return the root of the mean squared length of errors ``[points, 2]``."""
    return float(error.square().sum(dim=1).mean().sqrt())


def error_and_calls(setting: Setting, variant: str, seed: int, calls: int) -> tuple["Tensor", int]:
    """Return what a sampler finds minus the exact solution, float64 ``[points, 2]``, and the network calls that it made."""
    denoiser, noise, exact = problem(setting, seed)
    found, counted = setting.noise_range.sample(variant, denoiser, noise, calls)
    return found - exact, counted


@cache
def problem(setting: Setting, seed: int) -> tuple[Any, "Tensor", "Tensor"]:
    """Return the exact network, an initial noise ``[points, 2]`` and where the exact flow takes it."""
    import torch

    from lightning_modules.f_dpm_solver.denoiser import Denoiser
    from lightning_modules.f_dpm_solver.gaussian_mixture import ring_mixture
    from lightning_modules.f_dpm_solver.schedules import EDMSchedule
    from lightning_modules.generative.counted_random import normal

    denoiser = Denoiser(ring_mixture(EDMSchedule(), std=setting.std), "sample", EDMSchedule())
    noise = normal(setting.points * seed + torch.arange(setting.points), 0, (2,)).double()
    with torch.no_grad():
        return denoiser, noise, setting.noise_range.reference(denoiser, noise, REFERENCE_STEPS)
