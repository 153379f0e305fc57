"""DDIM, which freezes the data prediction at the noisy end of a step (plain torch)."""

from collections.abc import Iterator

from torch import Tensor

from lightning_modules.f_dpm_solver.denoiser import DataPrediction
from lightning_modules.f_dpm_solver.grids import Grid
from lightning_modules.f_dpm_solver.sampler import Sampler, data_coefficients, move


class DDIM(Sampler):
    r"""Deterministic DDIM, which is DPM-Solver++ of order 1 and the exponential Euler method.

    .. math::
        x_{i+1} = c_i x_i + b_i D(x_i, t_i)

    Source: Song et al. 2021 (arXiv 2010.02502), equation 12 with η = 0; Lu et al. 2022 (arXiv 2211.01095), section 4.
    """

    ends_without_noise = True

    def states(self, denoiser: DataPrediction, x: Tensor, grid: Grid) -> Iterator[tuple[Tensor, Tensor]]:
        for t, (c, b) in zip(grid.numbers.t[:-1], data_coefficients(grid), strict=True):
            data = denoiser(x, t)
            x = move(x, c, data, b)
            yield x, data
