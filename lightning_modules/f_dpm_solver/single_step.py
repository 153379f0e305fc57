"""DPM-Solver++ within a step, which remembers nothing from step to step (plain torch)."""

from collections.abc import Iterator

from torch import Tensor

from lightning_modules.f_dpm_solver.ddim import DDIM
from lightning_modules.f_dpm_solver.denoiser import DataPrediction
from lightning_modules.f_dpm_solver.grids import Grid, refined
from lightning_modules.f_dpm_solver.sampler import Sampler, data_coefficients, move


class DPMSolverPP1S(DDIM):
    """DPM-Solver++ of order 1, which is DDIM."""


class DPMSolverPP2S(Sampler):
    r"""DPM-Solver++ of order 2 within a step: two network calls, the second in the middle of the step's λ.

    .. math::
        u = U_{i \to m}(x_i, D(x_i, t_i)), \qquad x_{i+1} = U_i(x_i, D(u, t_m)), \qquad
        \lambda_m = \tfrac12 (\lambda_i + \lambda_{i+1})

    Source: Lu et al. 2022 (arXiv 2211.01095), algorithm 1 with :math:`r = \tfrac12`.
    """

    calls_per_step = 2
    starts_without_signal = False

    def states(self, denoiser: DataPrediction, x: Tensor, grid: Grid) -> Iterator[tuple[Tensor, Tensor]]:
        halves = refined(grid, 2)
        t, to_middle, whole = halves.numbers.t, data_coefficients(halves)[::2], data_coefficients(grid)
        for i, ((c_middle, b_middle), (c, b)) in enumerate(zip(to_middle, whole, strict=True)):
            middle = move(x, c_middle, denoiser(x, t[2 * i]), b_middle)
            data = denoiser(middle, t[2 * i + 1])
            x = move(x, c, data, b)
            yield x, data
