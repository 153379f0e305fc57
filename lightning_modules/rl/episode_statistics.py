"""Statistics of evaluation episodes, of all ranks together."""

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat


def interquartile_mean(values_N: Tensor) -> Tensor:
    """Return the mean of the middle half: the lowest and the highest quarter, rounded down to whole values, are left out.

    Source: Agarwal et al. 2021 (arXiv 2108.13264).
    """
    cut = len(values_N) // 4
    return values_N.sort().values[cut : len(values_N) - cut].mean()


class EpisodeStatistics(Metric):
    """Mean, spread, extremes and interquartile mean of the returns, and the mean length, of episodes.

    The statistics do not depend on which rank played which episode.
    """

    full_state_update = False
    returns: list[Tensor]
    lengths: list[Tensor]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("returns", default=[], dist_reduce_fx="cat")
        self.add_state("lengths", default=[], dist_reduce_fx="cat")

    def update(self, returns_E: Tensor, lengths_E: Tensor) -> None:
        """Take in episodes: returns and lengths, each ``[E]``."""
        self.returns.append(returns_E.to(self.device))
        self.lengths.append(lengths_E.to(self.device))

    def compute(self) -> dict[str, Tensor]:
        """Return ``return_mean``, ``_std`` (of the population), ``_min``, ``_max``, ``_iqm`` and ``length``."""
        returns_E = dim_zero_cat(self.returns).double().sort().values
        statistics = {
            "return_mean": returns_E.mean(),
            "return_std": returns_E.std(correction=0),
            "return_min": returns_E[0],
            "return_max": returns_E[-1],
            "return_iqm": interquartile_mean(returns_E),
            "length": dim_zero_cat(self.lengths).double().mean(),
        }
        return {name: torch.as_tensor(value, dtype=torch.float32) for name, value in statistics.items()}
