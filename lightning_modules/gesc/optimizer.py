"""The optimiser that GESC and all of its baselines are trained with."""

import math
from collections.abc import Iterable

import torch
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import nn


def adamw_with_cosine(
    parameters: Iterable[nn.Parameter],
    lr: float,
    weight_decay: float,
    min_lr_ratio: float,
    max_steps: int = -1,
    max_epochs: int | None = None,
) -> OptimizerLRSchedulerConfig:
    r"""Return AdamW with a learning rate that falls along half a cosine.

    .. math::
        \mathrm{lr}_t = \mathrm{lr} \cdot \bigl( r + (1-r) \tfrac{1 + \cos(\pi t/T)}{2} \bigr)

    t counts steps if their number is set, and epochs otherwise, so that the schedule needs to look at no loader; without an end it
    is constant.

    Args:
        parameters: all parameters of a model; those without gradient are left out.
        lr: learning rate at the start.
        weight_decay: weight decay of all parameters.
        min_lr_ratio: r, share of the learning rate at the end.
        max_steps: T in steps; -1: not set.
        max_epochs: T in epochs; None or -1: not set.
    """
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    # not fused: with mixed precision Lightning refuses to clip the gradients of a fused optimiser
    optimizer = torch.optim.AdamW(trained, lr=lr, weight_decay=weight_decay, foreach=True)
    by_step = max_steps > 0
    end = max_steps if by_step else max_epochs or -1

    def share(t: int) -> float:
        if end <= 0:
            return 1.0
        return min_lr_ratio + (1 - min_lr_ratio) * (1 + math.cos(math.pi * min(t / end, 1.0))) / 2

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, share)
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step" if by_step else "epoch"}}
