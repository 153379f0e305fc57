"""How many experts the layers of a mixture use while it trains, and how many each token uses in the end."""

from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from torch import Tensor

from callbacks.figure_style import figure_style
from callbacks.figures import publish_figure
from callbacks.routing_figures import active_figure, count_figure, depth_figure, threshold_figure


class RoutingStats(Callback):
    """Follow the controller of a mixture of experts, count experts a token at validations, and draw both when training ends.

    The figures are ``active_experts`` (mean over layers against optimiser steps, with the target), ``threshold`` (p, and the scales
    θ of the layers), ``depth`` (layer by step) and ``experts_per_token`` (histogram of the last validation, by layer). Without a
    controller there is only the last. The module has ``control``, the last step of its controller or None, ``thetas``, ``target``
    and ``num_experts``; its ``validation_step`` returns ``counts`` ``[L, B, T]``, or nothing.

    Args:
        every_n_steps: remember every so many optimiser steps.

    Raises:
        ValueError: if the number is not positive.
    """

    def __init__(self, every_n_steps: int = 10) -> None:
        if every_n_steps < 1:
            raise ValueError(f"RoutingStats needs a positive every_n_steps, got {every_n_steps}")
        self.every_n_steps = every_n_steps
        self._steps: list[int] = []
        self._history: dict[str, list[Tensor]] = {"active": [], "p": [], "theta": []}
        self._counts: Tensor | None = None

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        step, control = trainer.global_step, getattr(pl_module, "control", None)
        if control is None or step % self.every_n_steps or (self._steps and self._steps[-1] == step):
            return
        self._steps.append(step)
        self._history["active"].append(control.active_L.float().cpu())
        self._history["p"].append(control.p.float().cpu())
        if pl_module.thetas is not None:
            self._history["theta"].append(pl_module.thetas.float().cpu().clone())

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: Any) -> None:
        self._counts = None

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if not outputs:
            return
        counts_LK = torch.stack([counts.bincount(minlength=pl_module.num_experts + 1) for counts in outputs["counts"].flatten(1)])
        self._counts = counts_LK if self._counts is None else self._counts + counts_LK

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        if self._counts is not None:
            self._counts = trainer.strategy.reduce(self._counts, reduce_op="sum").cpu()

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        if not trainer.is_global_zero:
            return
        with figure_style():
            if self._steps:
                history = {name: torch.stack(values) for name, values in self._history.items() if values}
                publish_figure(trainer, active_figure(self._steps, history["active"], pl_module.target), "active_experts")
                publish_figure(trainer, threshold_figure(self._steps, history["p"], history.get("theta")), "threshold")
                publish_figure(trainer, depth_figure(self._steps, history["active"]), "depth")
            if self._counts is not None:
                publish_figure(trainer, count_figure(self._counts), "experts_per_token")

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self._steps, "history": self._history, "counts": self._counts}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._steps, self._history, self._counts = state_dict["steps"], state_dict["history"], state_dict["counts"]
