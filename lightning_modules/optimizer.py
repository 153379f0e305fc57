"""The optimiser that most methods and all of their baselines are trained with."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import nn


def adamw(
    parameters: Iterable[nn.Parameter],
    lr: float,
    weight_decay: float,
    *,
    warmup_steps: int = 0,
    warmup_share: float = 0.0,
    min_lr_ratio: float = 1.0,
    max_steps: int = -1,
    max_epochs: int | None = None,
    betas: tuple[float, float] = (0.9, 0.999),
    decay_vectors: bool = True,
) -> OptimizerLRSchedulerConfig:
    r"""Return AdamW with a linear warm-up and a learning rate that then falls along half a cosine.

    .. math::
        \mathrm{lr}_t = \mathrm{lr} \cdot \min\bigl(1, \tfrac{t + 1}{w}\bigr)
            \Bigl( r + (1-r) \tfrac{1 + \cos(\pi \tau)}{2} \Bigr), \qquad
        \tau = \operatorname{clip}\bigl( \tfrac{t - w}{T - w}, 0, 1 \bigr)

    t counts steps if their number T is set or there is a warm-up, and epochs otherwise, so that the schedule needs to look at no
    loader. Without an end there is no cosine.

    Args:
        parameters: all parameters of a model; those without gradient are left out.
        lr: learning rate after the warm-up.
        weight_decay: weight decay.
        warmup_steps: w.
        warmup_share: in its place, w as a share of T in steps; 0 if that is not set.
        min_lr_ratio: r, share of the learning rate at the end; 1 has no cosine.
        max_steps: T in steps; -1: not set.
        max_epochs: T in epochs, without warm-up; None or -1: not set.
        betas: decay of the first and the second moment.
        decay_vectors: whether weight decay acts on parameters with less than two axes too.

    Raises:
        ValueError: if a run with warm-up has its end in epochs and a cosine.
    """
    warmup_steps = warmup_steps or round(warmup_share * max(max_steps, 0))
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    by_step = max_steps > 0 or warmup_steps > 0
    end = max_steps if max_steps > 0 else max_epochs or -1
    if warmup_steps > 0 and max_steps <= 0 and min_lr_ratio < 1:
        raise ValueError("a warm-up with a falling learning rate needs the number of steps: set trainer.max_steps")
    groups: list[dict[str, Any]] = [{"params": trained}]
    if not decay_vectors:
        matrices, vectors = ([p for p in trained if (p.dim() >= 2) == wanted] for wanted in (True, False))
        groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    # not fused: with mixed precision Lightning refuses to clip the gradients of a fused optimiser
    optimizer = torch.optim.AdamW(groups, lr=lr, weight_decay=weight_decay, betas=betas, foreach=True)

    def share(t: int) -> float:
        warm = min(1.0, (t + 1) / max(warmup_steps, 1))
        if end <= 0 or min_lr_ratio == 1:
            return warm
        passed = min(max((t - warmup_steps) / max(end - warmup_steps, 1), 0.0), 1.0)
        return warm * (min_lr_ratio + (1 - min_lr_ratio) * (1 + math.cos(math.pi * passed)) / 2)

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, share)
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step" if by_step else "epoch"}}
