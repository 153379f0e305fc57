"""The second-order sampler of EDM (plain torch)."""

from collections.abc import Iterator

from torch import Tensor

from lightning_modules.f_dpm_solver.denoiser import DataPrediction
from lightning_modules.f_dpm_solver.grids import Grid
from lightning_modules.f_dpm_solver.sampler import Sampler, data_coefficients, move


class Heun(Sampler):
    r"""Heun's method for :math:`y = x / a` against the noise level :math:`\varsigma = s / a`.

    .. math::
        \frac{\mathrm d y}{\mathrm d \varsigma} = \frac{y - D}{\varsigma} = g, \qquad
        \tilde y = y_i + (\varsigma_{i+1} - \varsigma_i) \, g_i, \qquad
        y_{i+1} = y_i + \tfrac12 (\varsigma_{i+1} - \varsigma_i) (g_i + \tilde g_{i+1})

    Two network calls a step; a last step to zero noise is Euler's and takes one.

    Source: Karras et al. 2022 (arXiv 2206.00364), algorithm 1.
    """

    calls_per_step = 2
    starts_without_signal = False
    ends_without_noise = True

    def states(self, denoiser: DataPrediction, x: Tensor, grid: Grid) -> Iterator[tuple[Tensor, Tensor]]:
        t, a, s, _ = grid.numbers
        for i, (c, b) in enumerate(data_coefficients(grid)):
            data = denoiser(x, t[i])
            euler = move(x, c, data, b)
            if s[i + 1] == 0:
                yield euler, data
                return
            level, after = s[i] / a[i], s[i + 1] / a[i + 1]
            half = 0.5 * (after - level)
            x = (x * (a[i + 1] / a[i] * (1 + half / level))).add_(data, alpha=-a[i + 1] * half / level)
            data = denoiser(euler, t[i + 1])
            x = x.add_(euler, alpha=half / after).add_(data, alpha=-a[i + 1] * half / after)
            yield x, data
