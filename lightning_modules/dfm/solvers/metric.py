"""Samplers of metric paths, by the rates towards drawn data (plain torch).

Legend: B samples, D tokens, V ids, m sub-points of a step.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from lightning_modules.dfm.metric_path import MetricPath
from lightning_modules.dfm.solvers.base import CLOCK, SECOND_CLOCK, SECOND_TARGET, TARGET, DiscreteSolver
from lightning_modules.dfm.solvers.categorical import draw
from lightning_modules.dfm.solvers.chains import Chains
from lightning_modules.dfm.solvers.time_grid import Step
from lightning_modules.dfm.sources import Source

JUMP, SECOND_JUMP = 6, 7


class MetricTimeCorrectedSolver(DiscreteSolver):
    r"""Draw the data :math:`x_1^i \sim p^i` and follow the rates towards it, integrated over sub-points of the step.

    .. math::
        s_l = t_k + \tfrac{l-1}m h, \quad \lambda_l = \sum_z Q_{s_l}(z \mid x^i, x_1^i), \qquad
        P(\text{jump in } l) = e^{-\frac hm \sum_{k<l} \lambda_k} - e^{-\frac hm \sum_{k \le l} \lambda_k}

    The target has the law of :math:`Q_{s_l}`. m = 1 is the Euler step.

    Args:
        path: a metric path.
        sub_points: m.

    The other arguments are those of :class:`~lightning_modules.dfm.solvers.base.DiscreteSolver`; ``final="posterior"`` ends a run
    as the authors do.

    Raises:
        ValueError: if the source is masked, or m is below 1.

    Source: Wan et al. 2026 (arXiv 2601.22519), image experiment.
    """

    path_class = MetricPath
    path: MetricPath

    def __init__(
        self, model: Callable[..., Tensor], path: MetricPath, vocabulary_size: int, source: Source, sub_points: int = 32
    ) -> None:
        super().__init__(model, path, vocabulary_size, source)
        if source.mask_id is not None:
            raise ValueError("a metric path starts from uniform tokens: use UniformSource")
        if sub_points < 1:
            raise ValueError(f"sub_points={sub_points} must be 1 or more")
        self.sub_points = sub_points

    def step(self, x_BD: Tensor, step: Step, chains: Chains) -> Tensor:
        start_B = torch.full((len(x_BD),), step.start, dtype=torch.float64, device=x_BD.device)
        target_BD, interval_BD = self._first_jumps(x_BD, start_B, step.end, chains, (TARGET, CLOCK, JUMP))
        return torch.where(interval_BD < self.sub_points, target_BD, x_BD)

    def _first_jumps(
        self, x_BD: Tensor, start_B: Tensor, end: float, chains: Chains, roles: tuple[int, int, int]
    ) -> tuple[Tensor, Tensor]:
        """Return where every token jumps first, and in which sub-interval: m if in none, ``[B, D]`` both."""
        data_role, clock_role, jump_role = roles
        tokens = x_BD.shape[1:]
        data_BD = draw(chains.posterior(x_BD, start_B).cumsum(dim=-1), chains.uniform(data_role, tokens))
        clock_BD = chains.exponential(clock_role, tokens)
        width_B1 = ((end - start_B) / self.sub_points).unsqueeze(-1)
        risen_BD = torch.zeros(x_BD.shape, dtype=torch.float64, device=x_BD.device)
        interval_BD = torch.zeros_like(x_BD)
        rates = self.path.rates_between(x_BD, data_BD)
        for number in range(self.sub_points):
            risen_BD = risen_BD + width_B1 * rates(start_B.unsqueeze(-1) + number * width_B1).sum(dim=-1)
            interval_BD += risen_BD <= clock_BD
        when_BD = start_B.unsqueeze(-1) + interval_BD.clamp_max(self.sub_points - 1) * width_B1
        return draw(rates(when_BD).cumsum(dim=-1), chains.uniform(jump_role, tokens)), interval_BD


class MetricLocationCorrectedSolver(MetricTimeCorrectedSolver):
    r"""LC(j) on the sub-points: tokens jump until the sub-interval of the j-th jump, at whose end the model is asked again.

    All tokens that jump in that sub-interval count. The rest of the step is a time-corrected one, with m sub-points of its own.
    Where fewer than j tokens jump in the step, all their jumps stand and no second call is made. Every step waits for the device
    once.

    Args:
        j: number of jumps before the renewal.

    The other arguments are those of :class:`MetricTimeCorrectedSolver`.

    Raises:
        ValueError: if j is below 1.
    """

    def __init__(
        self,
        model: Callable[..., Tensor],
        path: MetricPath,
        vocabulary_size: int,
        source: Source,
        sub_points: int = 32,
        j: int = 1,
    ) -> None:
        super().__init__(model, path, vocabulary_size, source, sub_points)
        if j < 1:
            raise ValueError(f"j={j} must be 1 or more")
        self.j = j

    def step(self, x_BD: Tensor, step: Step, chains: Chains) -> Tensor:
        if self.j > x_BD.shape[1]:
            return super().step(x_BD, step, chains)
        start_B = torch.full((len(x_BD),), step.start, dtype=torch.float64, device=x_BD.device)
        target_BD, interval_BD = self._first_jumps(x_BD, start_B, step.end, chains, (TARGET, CLOCK, JUMP))
        last_B = interval_BD.kthvalue(self.j, dim=-1).values
        moves_BD = (interval_BD < self.sub_points) & (interval_BD <= last_B.unsqueeze(-1))
        moved_BD = torch.where(moves_BD, target_BD, x_BD)
        rows = (last_B < self.sub_points - 1).nonzero().squeeze(-1)
        if len(rows) == 0:
            return moved_BD
        renewal_B = step.start + (last_B[rows] + 1) * (step.length / self.sub_points)
        roles = (SECOND_TARGET, SECOND_CLOCK, SECOND_JUMP)
        target_BD, interval_BD = self._first_jumps(moved_BD[rows], renewal_B.double(), step.end, chains.select(rows), roles)
        return moved_BD.index_copy(0, rows, torch.where(interval_BD < self.sub_points, target_BD, moved_BD[rows]))
