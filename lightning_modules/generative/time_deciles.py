"""What is measured at times between 0 and 1, in tenths of them."""

import torch
from torch import Tensor
from torchmetrics import Metric

DECILES = 10


def decile(t: Tensor) -> Tensor:
    """Return the tenth in which a time lies, 0 to 9: decile j holds ``j / 10 <= t < (j + 1) / 10``, the last one 1 too."""
    return (DECILES * t).long().clamp(0, DECILES - 1)


class TimeDeciles(Metric):
    """Mean of a value in each tenth of the time, ``[10]``; nan where nothing was measured."""

    total: Tensor
    count: Tensor
    higher_is_better = None
    full_state_update = False

    def __init__(self) -> None:
        super().__init__()
        for name in ("total", "count"):
            self.add_state(name, torch.zeros(DECILES, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, value_n: Tensor, t_n: Tensor) -> None:
        """Add values and the times at which they were measured, ``[n]`` each."""
        places = decile(t_n)
        self.total.index_add_(0, places, value_n.double())
        self.count.index_add_(0, places, torch.ones_like(value_n, dtype=torch.float64))

    def compute(self) -> Tensor:
        return (self.total / self.count).float()
