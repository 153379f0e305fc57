"""The predictor-corrector that the authors of F-DPMSolver compare with as UniPC (plain torch)."""

from collections import deque
from collections.abc import Iterator

from torch import Tensor

from lightning_modules.f_dpm_solver.denoiser import DataPrediction
from lightning_modules.f_dpm_solver.exponential_weights import combine, for_noise_parts, noise_part, noise_step
from lightning_modules.f_dpm_solver.grids import Grid
from lightning_modules.f_dpm_solver.sampler import Sampler


class UniPCCode(Sampler):
    r"""Exponential predictor and corrector in noise predictions, one network call a step.

    At each point the noise prediction :math:`e_i` of the predicted state first corrects it, through the points
    :math:`t_i, t_{i-1}, t_{i-2}, \dots`, and then predicts the next:

    .. math::
        x_i &= \frac{a_i}{a_{i-1}} x_{i-1} - \frac{a_i s_{i-1}}{a_{i-1}} \sum_{j < \min(i+1, p)} w_j e_{i-j} \\
        \hat x_{i+1} &= \frac{a_{i+1}}{a_i} x_i - \frac{a_{i+1} s_i}{a_i} \sum_{j < \min(i+1, p-1)} \tilde w_j e_{i-j}

    with the weights of :mod:`exponential_weights`. The last state is a predicted one. It differs from the published UniPC in its
    basis functions; the sampler ``unipc`` is that one.

    Args:
        order: p, of the corrector.

    Raises:
        ValueError: if the order is below 2.

    Source: Jiao et al. 2026 (arXiv 2512.24927), code; Zhao et al. 2023 (arXiv 2302.04867).
    """

    starts_without_signal = False

    def __init__(self, order: int = 3) -> None:
        if order < 2:
            raise ValueError(f"the order of a predictor with corrector must be at least 2, got {order}")
        self.order = order

    def states(self, denoiser: DataPrediction, x: Tensor, grid: Grid) -> Iterator[tuple[Tensor, Tensor]]:
        t, a, s, _ = grid.numbers
        predictors = [for_noise_parts(noise_step(grid, i, i + 1, _points(i, self.order - 1)), s, i) for i in range(grid.steps)]
        correctors = [for_noise_parts(noise_step(grid, i - 1, i, _points(i, self.order)), s, i) for i in range(1, grid.steps)]
        history: deque[Tensor] = deque(maxlen=self.order)
        predicted = x
        for i, predictor in enumerate(predictors):
            data = denoiser(predicted, t[i])
            history.appendleft(noise_part(predicted, data, a[i]))
            if i:
                x = combine(x, correctors[i - 1][0], history, correctors[i - 1][1])
            predicted = combine(x, predictor[0], history, predictor[1])
            yield predicted, data


def _points(newest: int, order: int) -> range:
    return range(newest, max(newest - order, -1), -1)
