"""Samplers whose steps a scheduler of diffusers does, on any grid, in the interface of our own."""

import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor

from lightning_modules.f_dpm_solver.denoiser import DataPrediction
from lightning_modules.f_dpm_solver.diffusers_extra import diffusers
from lightning_modules.f_dpm_solver.grids import Grid
from lightning_modules.f_dpm_solver.sampler import Sampler


class DiffusersSampler(Sampler):
    """A scheduler of diffusers that walks along a grid of ours instead of its own.

    The scheduler works in variance-preserving coordinates, x divided by :math:`\\sqrt{a^2 + s^2}`.
    """

    starts_without_signal = False

    @abstractmethod
    def scheduler(self, grid: Grid) -> Any:
        """Return a scheduler that has taken over the noise levels of the grid and predicts the data."""

    def output(self, data: Tensor, x: Tensor, a: float, s: float) -> Tensor:
        """Return what the scheduler expects of a network at x, for variance-preserving a and s."""
        return data

    def states(self, denoiser: DataPrediction, x: Tensor, grid: Grid) -> Iterator[tuple[Tensor, Tensor]]:
        scheduler = self.scheduler(grid)
        scheduler.timesteps = torch.arange(grid.steps)
        scheduler.num_inference_steps = grid.steps
        scheduler.set_begin_index(0)
        times, signal, noise = grid.t.tolist(), grid.a.tolist(), grid.s.tolist()
        lengths = [math.hypot(a, s) for a, s in zip(signal, noise, strict=True)]
        for i in range(grid.steps):
            data = denoiser(x, times[i])
            scaled = x / lengths[i]
            output = self.output(data, scaled, signal[i] / lengths[i], noise[i] / lengths[i])
            x = scheduler.step(output, scheduler.timesteps[i], scaled, return_dict=False)[0] * lengths[i + 1]
            yield x, data


class UniPCSampler(DiffusersSampler):
    """UniPC with diffusers' ``UniPCMultistepScheduler``.

    Args:
        order: 2 or 3 are usual.
        solver_type: the function B(h), ``bh1`` or ``bh2``.
        lower_order_final: lower the order in the last steps, if they are fewer than 15.

    Source: Zhao et al. 2023 (arXiv 2302.04867).
    """

    def __init__(self, order: int = 2, solver_type: Literal["bh1", "bh2"] = "bh2", lower_order_final: bool = True) -> None:
        if order < 1:
            raise ValueError(f"the order of UniPC must be at least 1, got {order}")
        if solver_type not in ("bh1", "bh2"):
            raise ValueError(f"unknown solver_type={solver_type!r}: choose bh1 or bh2")
        self.options = {"solver_order": order, "solver_type": solver_type, "lower_order_final": lower_order_final}

    def scheduler(self, grid: Grid) -> Any:
        scheduler = diffusers.UniPCMultistepScheduler(**self.options, prediction_type="sample")
        scheduler.sigmas = grid.s / grid.a
        return scheduler


class DEISSampler(DiffusersSampler):
    """DEIS (its ``logrho`` form) with diffusers' ``DEISMultistepScheduler``.

    Args:
        order: 1, 2 or 3.
        lower_order_final: lower the order in the last steps, if they are fewer than 15.

    Source: Zhang and Chen 2023 (arXiv 2204.13902).
    """

    def __init__(self, order: int = 3, lower_order_final: bool = True) -> None:
        if order not in (1, 2, 3):
            raise ValueError(f"the order of DEIS must be 1, 2 or 3, got {order}")
        self.options = {"solver_order": order, "lower_order_final": lower_order_final}

    def scheduler(self, grid: Grid) -> Any:
        scheduler = diffusers.DEISMultistepScheduler(**self.options, prediction_type="sample")
        scheduler.sigmas = grid.s / grid.a
        return scheduler


class IPNDMSampler(DiffusersSampler):
    """Improved pseudo linear multistep, order 4, with diffusers' ``IPNDMScheduler``.

    Its weights are those of equal steps, whatever the grid.

    Source: Zhang and Chen 2023 (arXiv 2204.13902), after Liu et al. 2022 (arXiv 2202.09778).
    """

    def scheduler(self, grid: Grid) -> Any:
        scheduler = diffusers.IPNDMScheduler()
        length = (grid.a.square() + grid.s.square()).sqrt()
        scheduler.alphas, scheduler.betas = grid.a / length, grid.s / length
        return scheduler

    def output(self, data: Tensor, x: Tensor, a: float, s: float) -> Tensor:
        """Return the velocity :math:`v = a \\epsilon - s x_0`, which this scheduler expects."""
        return (a * x - data) / s
