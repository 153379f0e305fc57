"""Tau-leaping: Poisson many jumps of every token in a step (plain torch).

Legend: B samples, D tokens, V ids, K jumps.
"""

import math
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from lightning_modules.dfm.path import DiscretePath
from lightning_modules.dfm.solvers.base import CLOCK, TARGET, DiscreteSolver
from lightning_modules.dfm.solvers.categorical import draw, rates_away
from lightning_modules.dfm.solvers.chains import Chains
from lightning_modules.dfm.solvers.time_grid import Step
from lightning_modules.dfm.sources import Source

TAIL = 1e-13


class TauLeapingSolver(DiscreteSolver):
    r"""Every token makes :math:`N^{iz} \sim \mathrm{Poisson}(h \rho \, q^i(z))` jumps to each z.

    .. math::
        y^i = x^i + \sum_z (z - x^i) N^{iz} \quad (\text{ordinal; } x^i \text{ if outside } 0 \dots V - 1), \qquad
        y^i = z \text{ if it is the only jump, else } x^i \quad (\text{categorical})

    Args:
        mode: ``ordinal`` adds differences of ids, which means something only where ids are quantities (a warning says so);
            ``categorical`` makes a jump only where it is the only one.

    The other arguments are those of :class:`~lightning_modules.dfm.solvers.base.DiscreteSolver`.

    Raises:
        ValueError: if the mode is neither.

    Source: Campbell et al. 2022 (arXiv 2205.14987).
    """

    def __init__(
        self, model: Callable[..., Tensor], path: DiscretePath, vocabulary_size: int, source: Source, mode: str = "ordinal"
    ) -> None:
        super().__init__(model, path, vocabulary_size, source)
        if mode not in ("ordinal", "categorical"):
            raise ValueError(f"mode={mode!r} must be ordinal or categorical")
        if mode == "ordinal":
            warnings.warn(
                "ordinal tau-leaping adds differences of token ids, which is meaningless for words and masks: "
                "use mode='categorical' unless ids are quantities",
                stacklevel=2,
            )
        self.mode = mode

    def step(self, x_BD: Tensor, step: Step, chains: Chains) -> Tensor:
        exposure = step.length * step.hazard
        cumulative_BDV, total_BD = rates_away(chains.posterior(x_BD, step.start), x_BD)
        most = most_jumps(exposure) if self.mode == "ordinal" else 1
        count_BD = poisson(exposure * total_BD.double(), chains.uniform(CLOCK, x_BD.shape[1:]), most + 1)
        target_BDK = draw(cumulative_BDV, chains.uniform(TARGET, (*x_BD.shape[1:], most)))
        if self.mode == "categorical":
            return torch.where(count_BD == 1, target_BDK[..., 0], x_BD)
        made_BDK = torch.arange(most, device=x_BD.device) < count_BD.unsqueeze(-1)
        y_BD = x_BD + torch.where(made_BDK, target_BDK - x_BD.unsqueeze(-1), 0).sum(dim=-1)
        return torch.where((y_BD >= 0) & (y_BD < self.vocabulary_size), y_BD, x_BD)


def most_jumps(mean: float) -> int:
    """Return a number that a Poisson count of this mean, or of a smaller one, exceeds with a probability below 1e-13."""
    count = max(math.ceil(mean), 1)
    while _tail_bound(mean, count) > TAIL:
        count += 1
    return count


def _tail_bound(mean: float, count: int) -> float:
    """Bound P(N > count) for a count above the mean: the next probability times a geometric series."""
    following = math.exp((count + 1) * math.log(max(mean, 1e-300)) - mean - math.lgamma(count + 2))
    return following / (1 - mean / (count + 2))


def poisson(mean: Tensor, uniform: Tensor, most: int) -> Tensor:
    """Return Poisson counts by inversion, cut off at ``most``; int64 of the shape of both."""
    probability = torch.exp(-mean)
    below, count = probability, torch.zeros_like(mean, dtype=torch.int64)
    for number in range(1, most + 1):
        count += uniform >= below
        probability = probability * mean / number
        below = below + probability
    return count
