"""What all samplers share: one interface, an honest count of network calls, and checks that cost no waiting (plain torch).

A sampler follows the probability-flow ODE of a diffusion from the first point of a grid to the last. With signal a, noise s and
the data prediction D, most of them move by

.. math::
    U_i(x, D) = c_i x + b_i D, \\qquad c_i = \\frac{s_{i+1}}{s_i}, \\qquad b_i = a_{i+1} - a_i c_i,

which is exact while D stays constant.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from lightning_modules.f_dpm_solver.denoiser import DataPrediction
from lightning_modules.f_dpm_solver.grids import Grid


@dataclass(frozen=True, eq=False)
class SamplerOutput:
    """What a sampler found.

    Attributes:
        x: state at the last point of the grid, ``[B, ...]``.
        data_prediction: the last prediction of the data, of the same shape.
        nfe: counted calls of the denoiser.
        trajectory: all states, ``[N + 1, B, ...]``, or None.
    """

    x: Tensor
    data_prediction: Tensor
    nfe: int
    trajectory: Tensor | None = None


class CountedDenoiser:
    """Passes calls on, and keeps their number, their times and the sums of what came back."""

    def __init__(self, denoiser: DataPrediction) -> None:
        self.denoiser = denoiser
        self.times: list[float] = []
        self.sums: list[Tensor] = []

    def __call__(self, x: Tensor, t: float) -> Tensor:
        data = self.denoiser(x, t)
        if data.shape != x.shape or data.dtype != x.dtype:
            raise ValueError(
                f"the denoiser returned {list(data.shape)} of {data.dtype} for a state {list(x.shape)} of {x.dtype}: "
                "return shape and precision of the state"
            )
        self.times.append(t)
        self.sums.append(data.detach().sum())
        return data

    def refuse_non_finite(self, grid: Grid) -> None:
        """Raise if a prediction held NaN or Inf; waits for the device once."""
        finite = torch.stack(self.sums).isfinite()
        if finite.all():
            return
        call = int(finite.int().argmin())
        point = int((grid.t - self.times[call]).abs().argmin())
        raise RuntimeError(
            f"the network returned NaN or Inf in call {call + 1} of {len(self.times)}, at t = {self.times[call]:.6g} "
            f"(point {point} of {grid.steps}, sigma = {grid.s[point]:.6g}); check its weights, its precision and its input scale"
        )


class Sampler(ABC):
    """A numerical method along a grid. Gradients flow through it: sample under ``torch.no_grad()`` unless they are wanted.

    Attributes:
        calls_per_step: network calls of a step.
        starts_without_signal: whether the first point of the grid may have a = 0.
        ends_without_noise: whether the last point may have s = 0.
    """

    calls_per_step = 1
    starts_without_signal = True
    ends_without_noise = False

    @abstractmethod
    def states(self, denoiser: DataPrediction, x: Tensor, grid: Grid) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the state at the end of each step and the last data prediction; coefficients are numbers made before the steps."""

    def steps_for(self, nfe: int) -> int:
        """Return how many steps spend a number of calls, at most.

        Raises:
            ValueError: if it is too small for one step.
        """
        steps = nfe // self.calls_per_step
        if steps < 1:
            raise ValueError(f"{type(self).__name__} needs {self.calls_per_step} network calls a step, got a budget of {nfe}")
        return steps

    def sample(self, denoiser: DataPrediction, x_init: Tensor, grid: Grid, *, return_trajectory: bool = False) -> SamplerOutput:
        r"""Follow the ODE from the first point of the grid to the last.

        Args:
            denoiser: any function (x, t) → D that keeps the shape; a number t is a time of the grid's schedule.
            x_init: states at the first point, ``[B, ...]``, in the coordinates :math:`a x_0 + s \epsilon` of the grid: plain normal
                noise where :math:`a^2 + s^2 = 1`. Half precision is widened to float32, with a warning.
            grid: points.
            return_trajectory: keep all states.

        Raises:
            ValueError: if the sampler cannot start or end at the grid's ends, or the denoiser changes the shape.
            RuntimeError: if the network returns NaN or Inf.
        """
        self.check(grid)
        x = x_init
        if x.dtype in (torch.float16, torch.bfloat16):
            warnings.warn(f"a state of {x.dtype} loses what the steps add: sampling in float32", stacklevel=2)
            x = x.float()
        counted, trajectory, last = CountedDenoiser(denoiser), [x], (x, x)
        for last in self.states(counted, x, grid):
            if return_trajectory:
                trajectory.append(last[0])
        counted.refuse_non_finite(grid)
        return SamplerOutput(*last, len(counted.times), torch.stack(trajectory) if return_trajectory else None)

    def check(self, grid: Grid) -> None:
        """Refuse a grid that this sampler cannot follow."""
        name = type(self).__name__
        if not self.starts_without_signal and grid.a[0] == 0:
            raise ValueError(f"{name} cannot start where alpha = 0: start the grid at a smaller time or a finite sigma_max")
        if not self.ends_without_noise and grid.s[-1] == 0:
            raise ValueError(f"{name} cannot end where sigma = 0: use a grid with sigma_min > 0")


def data_coefficients(grid: Grid) -> list[tuple[float, float]]:
    """Return c and b of every step, see the top of this file."""
    _, a, s, _ = grid.numbers
    ratios = [after / before for before, after in pairwise(s)]
    return [(c, after - before * c) for c, (before, after) in zip(ratios, pairwise(a), strict=True)]


def move(x: Tensor, c: float, data: Tensor, b: float) -> Tensor:
    """Return c x + b D."""
    return (x * c).add_(data, alpha=b)
