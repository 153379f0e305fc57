"""Drives the controller of a mixture of experts from outside, and logs what it does."""

from typing import Any, Protocol, runtime_checkable

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor


class ControlStep(Protocol):
    """What a step of the controller saw and did.

    Attributes:
        p: the new threshold, a scalar or ``[L]``.
        active_L: average number of active experts of each layer.
    """

    @property
    def p(self) -> Tensor: ...

    @property
    def active_L(self) -> Tensor: ...


@runtime_checkable
class Controlled(Protocol):
    """A module whose controller acts at most once in an optimiser step, whoever asks.

    ``thetas`` are the scales of its routers, ``[L]``, or None.
    """

    thetas: Tensor | None

    def move_threshold(self) -> ControlStep | None: ...


class DTopPCallback(Callback):
    """Let the controller act before each optimiser step, and log it.

    Logged are ``moe/p`` (``moe/p_layer<l>`` if each layer has its own), ``moe/active``, ``moe/active_layer<l>`` and, where logits
    are standardised, ``moe/theta_layer<l>``. The state is the module's, so a checkpoint needs no callback.

    Args:
        optimizer: number of the optimiser whose steps count.

    Raises:
        ValueError: if the module has no controller to drive, or there are two of these callbacks.
    """

    def __init__(self, optimizer: int = 0) -> None:
        if optimizer < 0:
            raise ValueError(f"DTopPCallback needs the number of an optimiser, got {optimizer}")
        self.optimizer = optimizer

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if not isinstance(pl_module, Controlled):
            raise ValueError(
                f"DTopPCallback needs a module with move_threshold(), which {type(pl_module).__name__} has not: leave it out"
            )
        if sum(isinstance(callback, DTopPCallback) for callback in trainer.callbacks) > 1:  # type: ignore[attr-defined]
            raise ValueError("there are two DTopPCallbacks: one is enough, and the module acts without any")

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: Any, optimizer: torch.optim.Optimizer) -> None:
        if optimizer is not trainer.optimizers[self.optimizer]:
            return
        done = pl_module.move_threshold()
        if done is None:
            return
        values = {"moe/active": done.active_L.nanmean(), **_by_layer("moe/active", done.active_L)}
        values |= _by_layer("moe/p", done.p) if done.p.ndim else {"moe/p": done.p}
        if pl_module.thetas is not None:
            values |= _by_layer("moe/theta", pl_module.thetas)
        pl_module.log_dict({name: value.float() for name, value in values.items()})


def _by_layer(name: str, values_L: Tensor) -> dict[str, Tensor]:
    return {f"{name}_layer{layer}": value for layer, value in enumerate(values_L)}
