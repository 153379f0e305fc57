"""The optimiser that Sheaf-ADMM and all of its baselines are trained with."""

from collections.abc import Iterable

import torch
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import nn


def adamw_with_warmup(
    parameters: Iterable[nn.Parameter], lr: float, weight_decay: float, warmup_steps: int
) -> OptimizerLRSchedulerConfig:
    """Return AdamW on the parameters that are trained, with a linear warm-up after each step.

    Args:
        parameters: all parameters of a model; those without gradient are left out.
        lr: learning rate after the warm-up, where it stays.
        weight_decay: its weight decay.
        warmup_steps: step t has ``lr * min(1, (t + 1) / warmup_steps)``.
    """
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    # not fused: with mixed precision Lightning refuses to clip the gradients of a fused optimiser
    optimizer = torch.optim.AdamW(trained, lr=lr, weight_decay=weight_decay, foreach=True)
    warmup = max(warmup_steps, 1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / warmup))
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}
