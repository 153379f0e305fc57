"""Multistep samplers, which reuse predictions of steps before: one network call a step (plain torch)."""

import math
from collections import deque
from collections.abc import Iterator

from torch import Tensor

from lightning_modules.f_dpm_solver.denoiser import DataPrediction
from lightning_modules.f_dpm_solver.exponential_weights import combine, for_noise_parts, noise_part, noise_step
from lightning_modules.f_dpm_solver.grids import Grid
from lightning_modules.f_dpm_solver.sampler import Sampler, data_coefficients, move


class EpsMultistep(Sampler):
    r"""Exponential Adams-Bashforth method in noise predictions, the "DPMSolver" of the F-DPMSolver authors.

    .. math::
        x_{i+1} = \frac{a_{i+1}}{a_i} x_i - \frac{a_{i+1} s_i}{a_i} \sum_{j < q} w_j \epsilon(x_{i-j}, t_{i-j}), \qquad
        q = \min(i + 1, p)

    with the weights of :mod:`exponential_weights`. Order 1 is DDIM; a start without signal takes DDIM's step first.

    Args:
        order: p.

    Raises:
        ValueError: if the order is below 1.

    Source: Lu et al. 2022 (arXiv 2206.00927), of which it is the multistep form; Hochbruck and Ostermann 2010, section 2.
    """

    def __init__(self, order: int = 2) -> None:
        if order < 1:
            raise ValueError(f"the order of a multistep sampler must be at least 1, got {order}")
        self.order = order

    def states(self, denoiser: DataPrediction, x: Tensor, grid: Grid) -> Iterator[tuple[Tensor, Tensor]]:
        t, a, s, _ = grid.numbers
        first, oldest = data_coefficients(grid)[0], int(a[0] == 0)
        points = [range(i, max(i - self.order, oldest - 1), -1) for i in range(grid.steps)]
        steps = [for_noise_parts(noise_step(grid, i, i + 1, points[i]), s, i) for i in range(1, grid.steps)]
        history: deque[Tensor] = deque(maxlen=self.order)
        for i in range(grid.steps):
            data = denoiser(x, t[i])
            history.appendleft(noise_part(x, data, a[i]))
            x = combine(x, steps[i - 1][0], history, steps[i - 1][1]) if i else move(x, first[0], data, first[1])
            yield x, data


class DPMSolverPPMultistep(Sampler):
    r"""DPM-Solver++ of order 2 or 3 over several steps, in data predictions :math:`D_i`.

    With :math:`h = \lambda_{i+1} - \lambda_i`, :math:`r_0 = (\lambda_i - \lambda_{i-1}) / h`,
    :math:`r_1 = (\lambda_{i-1} - \lambda_{i-2}) / h`, differences :math:`d_0 = (D_i - D_{i-1}) / r_0`,
    :math:`d_1 = (D_{i-1} - D_{i-2}) / r_1`, :math:`\delta = (d_0 - d_1) / (r_0 + r_1)` and :math:`\delta_0 = d_0 + r_0 \delta`,

    .. math::
        \text{2M:} \quad x_{i+1} &= c_i x_i + b_i \bigl( D_i + \tfrac12 d_0 \bigr) \\
        \text{3M:} \quad x_{i+1} &= c_i x_i + b_i D_i + a_{i+1} \Bigl( \frac{e^{-h} - 1}{h} + 1 \Bigr) \delta_0
            - a_{i+1} \Bigl( \frac{e^{-h} - 1 + h}{h^2} - \frac12 \Bigr) \delta

    The first step is DDIM's, and the second step of 3M is that of 2M.

    Args:
        order: 2 or 3.

    Raises:
        ValueError: if the order is another number.

    Source: Lu et al. 2022 (arXiv 2211.01095), algorithm 2; its third order as in the authors' code.
    """

    def __init__(self, order: int = 2) -> None:
        if order not in (2, 3):
            raise ValueError(f"DPM-Solver++ over several steps has order 2 or 3, got {order}; order 1 is ddim")
        self.order = order

    def states(self, denoiser: DataPrediction, x: Tensor, grid: Grid) -> Iterator[tuple[Tensor, Tensor]]:
        steps = [self._weights(grid, i, b) for i, (_, b) in enumerate(data_coefficients(grid))]
        history: deque[Tensor] = deque(maxlen=self.order)
        for t, (c, _), weights in zip(grid.numbers.t[:-1], data_coefficients(grid), steps, strict=True):
            history.appendleft(denoiser(x, t))
            x = combine(x, c, history, weights)
            yield x, history[0]

    def _weights(self, grid: Grid, i: int, b: float) -> list[float]:
        """Return the weights of D_i, D_{i-1} and D_{i-2}."""
        log_snr, a = grid.numbers.log_snr, grid.numbers.a
        if i == 0:
            return [b]
        h = log_snr[i + 1] - log_snr[i]
        r_0 = (log_snr[i] - log_snr[i - 1]) / h
        if self.order == 2 or i == 1:
            return [b + b / (2 * r_0), -b / (2 * r_0)]
        r_1 = (log_snr[i - 1] - log_snr[i - 2]) / h
        first = a[i + 1] * (math.expm1(-h) / h + 1)
        second = -a[i + 1] * ((math.expm1(-h) + h) / h**2 - 0.5)
        on_d_0 = first * (1 + r_0 / (r_0 + r_1)) + second / (r_0 + r_1)
        on_d_1 = -(first * r_0 + second) / (r_0 + r_1)
        return [b + on_d_0 / r_0, on_d_1 / r_1 - on_d_0 / r_0, -on_d_1 / r_1]
