"""Exponential moving average of the weights, used for every evaluation and kept in every checkpoint."""

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy, SingleDeviceStrategy
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor


class EMAWeights(Callback):
    r"""Keep a moving average of the trainable parameters and evaluate with it.

    .. math::
        \bar w_0 = w_0, \qquad \bar w_{t+1} = d_t \bar w_t + (1 - d_t)\, w_{t+1}, \qquad
        d_t = \begin{cases} \min\bigl(d, \tfrac{1 + t}{10 + t}\bigr) & \text{with warm-up} \\ d & \text{without} \end{cases}

    where :math:`w_{t}` are the weights after :math:`t` optimiser steps.

    - During ``fit`` the average replaces the live weights for each validation, and the live ones come back bit for bit.
      After ``fit`` the module holds the average.
    - ``checkpoint["state_dict"]`` is the average, so "best" and any plain reader of the file get it; the live weights stand in
      ``checkpoint["current_model_state"]`` and a resumed run continues from them exactly.
    - Parameters that are frozen when training starts and all buffers are not averaged: they are those of the live model.

    Lightning's own ``WeightAveraging`` writes the same two keys. This class does not build on it: in Lightning 2.6 a test after
    ``fit`` with the same trainer loads the live weights from the checkpoint, a checkpoint written during a validation has the two
    sets of weights exchanged, and each step waits for the GPU.

    Args:
        decay: decay :math:`d`, at least 0 and below 1.
        warmup: let the decay grow from 1/10, so that a short run forgets its initial weights.

    Raises:
        ValueError: if ``decay`` is outside its range, if the weights are sharded over devices, or if a run is resumed with another
            ``decay`` or ``warmup`` than it was started with.

    Source: Sheaf-ADMM (arXiv 2605.31005), training details (decay 0.999).
    """

    def __init__(self, decay: float = 0.999, warmup: bool = False) -> None:
        if not 0.0 <= decay < 1.0:
            raise ValueError(f"EMAWeights needs 0 <= decay < 1, got {decay}")
        self.decay = decay
        self.warmup = warmup
        self.updates = 0
        self._latest_step = 0
        self._live: list[Tensor] = []
        self._average: list[Tensor] = []
        self._swapped = False
        self._restored: dict[str, Any] = {}
        self._restored_live: dict[str, Tensor] | None = None

    def decay_at(self, update: int) -> float:
        """Return :math:`d_t` for ``t = update``."""
        return min(self.decay, (1 + update) / (10 + update)) if self.warmup else self.decay

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse what cannot work; outside ``fit`` drop the average, for the module's own weights are what is evaluated."""
        if stage != "fit":
            self._live, self._average, self._swapped = [], [], False
            return
        whole = isinstance(trainer.strategy, (SingleDeviceStrategy, DDPStrategy))
        if not whole or isinstance(trainer.strategy, DeepSpeedStrategy):
            raise ValueError(
                f"EMAWeights needs whole parameters on every device, which {type(trainer.strategy).__name__} does not keep: "
                "use strategy ddp, or leave EMAWeights out"
            )
        if any(getattr(callback, "save_weights_only", False) for callback in trainer.checkpoint_callbacks):
            raise ValueError("a checkpoint with save_weights_only=True would miss the average of EMAWeights: set it to False")
        if self._swapped:
            self._swap()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the average from the module: it holds the initial weights, or the average of the checkpoint it was loaded from."""
        self._latest_step = trainer.global_step
        live: list[Tensor] = [parameter for parameter in pl_module.parameters() if parameter.requires_grad]
        goes_on = [id(parameter) for parameter in live] == [id(parameter) for parameter in self._live]
        if goes_on and self._restored_live is None:
            return
        self._live, self._average = live, [parameter.detach().clone() for parameter in live]
        self.updates = 0
        if self._restored_live is not None:
            self._resume(pl_module, self._restored_live)
            self._restored_live = None

    @torch.no_grad()
    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if self._average and trainer.global_step > self._latest_step:
            torch._foreach_lerp_(self._average, self._live, 1.0 - self.decay_at(self.updates))
            self._latest_step = trainer.global_step
            self.updates += 1

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit" and not self._swapped:
            self._swap()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit" and self._swapped:
            self._swap()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self._swapped:
            self._swap()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        if self._swapped:
            self._swap()

    def state_dict(self) -> dict[str, Any]:
        return {"decay": self.decay, "warmup": self.warmup, "updates": self.updates}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._restored = state_dict

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if not self._average:
            return
        # While swapped, the module holds the average and `_average` the live weights.
        kept = {id(parameter): kept for parameter, kept in zip(self._live, self._average, strict=True)}
        module_state: dict[str, Tensor] = checkpoint["state_dict"]
        other_state = dict(module_state)
        for name, parameter in pl_module.named_parameters(remove_duplicate=False):
            if name in other_state and id(parameter) in kept:
                other_state[name] = kept[id(parameter)]
        average, live = (module_state, other_state) if self._swapped else (other_state, module_state)
        checkpoint["state_dict"], checkpoint["current_model_state"] = average, live

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if trainer.state.fn == "fit":
            self._restored_live = checkpoint.get("current_model_state")
            if self._restored_live is None:
                rank_zero_info("The checkpoint holds no moving average: EMAWeights starts one from its weights.")

    def _resume(self, pl_module: LightningModule, live_state: dict[str, Tensor]) -> None:
        """Put the live weights of the checkpoint back and continue counting."""
        for key, now in self.state_dict().items():
            before = self._restored.get(key, now)
            if key != "updates" and before != now:
                raise ValueError(f"EMAWeights: the run to resume was started with {key}={before}, now {key}={now}: use the same")
        pl_module.load_state_dict(live_state, strict=pl_module.strict_loading)
        self.updates = self._restored.get("updates", 0)

    @torch.no_grad()
    def _swap(self) -> None:
        """Exchange live and average values in place, so that optimisers and DDP keep their tensors."""
        if self._average:
            live = [parameter.clone() for parameter in self._live]
            torch._foreach_copy_(self._live, self._average)
            torch._foreach_copy_(self._average, live)
            self._swapped = not self._swapped
