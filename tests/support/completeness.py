"""Every number that an agent and its data hold, so that a resumed run can be compared with the one that was saved."""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from lightning import Callback, LightningModule, Trainer

from datamodules.rl.datamodule import RLDataModule

OURS = ("datamodules", "lightning_modules")
STORES = {"_parameters", "_buffers", "_modules"}
FOREIGN = (vars(LightningModule()).keys() | vars(RLDataModule.__mro__[1]()).keys()) - STORES
"""What Lightning and torch keep for themselves; parameters, buffers and submodules are looked into."""
TRANSIENT = {"_stage_envs"}
"""What a resumed run builds anew."""

Numbers = dict[str, Any]


def numbers(thing: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every number, tensor and random state in objects of this project, by its path."""
    if isinstance(thing, torch.Generator):
        yield path, thing.get_state()
    elif isinstance(thing, (torch.Tensor, np.ndarray)):
        yield path, torch.as_tensor(thing).detach().clone()
    elif isinstance(thing, (bool, int, float, str, Fraction, np.generic)):
        yield path, thing
    elif isinstance(thing, (dict, list, tuple)):
        for key, value in thing.items() if isinstance(thing, dict) else enumerate(thing):
            yield from numbers(value, f"{path}/{key}")
    elif isinstance(thing, torch.nn.Module) or type(thing).__module__.startswith(OURS):
        for key, value in vars(thing).items():
            ours = type(thing).__module__.startswith(OURS) and key not in FOREIGN | TRANSIENT
            if ours or (isinstance(thing, torch.nn.Module) and key in STORES):
                yield from numbers(value, f"{path}/{key}")


class Look(Callback):
    """Note all numbers as training begins, if there is any, and as it ends."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.first = self._all(trainer, pl_module)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.last = self._all(trainer, pl_module)

    @staticmethod
    def _all(trainer: Trainer, pl_module: LightningModule) -> Numbers:
        return dict(numbers(pl_module, "module")) | dict(numbers(trainer.datamodule, "data"))


def differ(one: Any, other: Any) -> bool:
    return not torch.equal(one, other) if isinstance(one, torch.Tensor) else one != other
