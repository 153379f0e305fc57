"""The solution that samplers are compared with (plain torch)."""

import torch
from torch import Tensor

from lightning_modules.f_dpm_solver.denoiser import DataPrediction
from lightning_modules.f_dpm_solver.grids import Grid, refined


def reference_solution(denoiser: DataPrediction, x: Tensor, grid: Grid, steps: int = 1500) -> Tensor:
    r"""Solve the probability-flow ODE between the ends of a grid with the classical Runge-Kutta method, in float64.

    .. math::
        \frac{\mathrm d y}{\mathrm d \lambda} = D(a y, t) - y, \qquad y = x / a

    Args:
        denoiser: function (x, t) → D that keeps float64; a network of float32 goes through ``Denoiser(net_dtype=torch.float32)``.
        x: states at the first point, ``[B, ...]``.
        grid: points, of which the ends count, with their schedule.
        steps: equal steps of λ, of four calls each.

    Returns:
        States at the last point, float64.

    Raises:
        ValueError: if there is no step, or an end of the grid is infinite in λ.
    """
    if steps < 1:
        raise ValueError(f"the reference needs at least one step, got {steps}")
    ends = Grid(grid.t[[0, -1]], grid.a[[0, -1]], grid.s[[0, -1]], grid.schedule)
    t, a, _, log_snr = refined(ends, 2 * steps).numbers
    h = (log_snr[-1] - log_snr[0]) / steps
    y = x.double() / a[0]
    for i in range(0, 2 * steps, 2):
        first = denoiser(a[i] * y, t[i]) - y
        middle = torch.add(y, first, alpha=h / 2)
        second = denoiser(a[i + 1] * middle, t[i + 1]) - middle
        middle = torch.add(y, second, alpha=h / 2)
        third = denoiser(a[i + 1] * middle, t[i + 1]) - middle
        end = torch.add(y, third, alpha=h)
        fourth = denoiser(a[i + 2] * end, t[i + 2]) - end
        y = torch.add(y, first + 2 * (second + third) + fourth, alpha=h / 6)
    return a[-1] * y
