"""Whether learned features collapse: in how many directions they spread, and how that changes while a model trains."""

from typing import Any, Protocol, runtime_checkable

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from callbacks.figure_style import figure_style
from callbacks.figures import publish_figure
from callbacks.own_steps import steps_done
from callbacks.representation_figures import spectrum_figure

SRANK_SHARE = 0.99
DEAD_SHARE = 0.01


@runtime_checkable
class RepresentsStates(Protocol):
    """A module with features of states, ``[B, n]`` to ``[B, d]``."""

    def representation(self, obs: Tensor) -> Tensor: ...


@runtime_checkable
class RemembersStates(Protocol):
    """A data module that has seen states, and shows the newest without drawing random numbers."""

    def newest_observations(self, count: int, device: torch.device) -> Tensor: ...


@runtime_checkable
class HoldsStates(Protocol):
    """A data set with its states, ``[N, n]``."""

    obs: Tensor


class RepresentationMonitor(Callback):
    """Measure the features Z of some states at validations, and draw their singular values when training ends.

    The states are the newest ones that the data module remembers, on several ranks those of rank zero; a data module that remembers
    none shows the first of its validation set. Logged are:

    - ``repr/effective_rank``: exponential of the entropy of the normalised singular values of Z (Roy and Vetterli 2007);
    - ``repr/effective_rank_centered``: the same for HZ, which is Z minus its mean;
    - ``repr/srank``: how many of the largest singular values make up 99 % of their sum (Kumar et al. 2021, arXiv 2010.14498);
    - ``repr/dead_features``: share of features whose deviation is below 1 % of the root mean square of all features.

    The figure is ``spectrum``.

    Args:
        every_env_steps: measure at the first validation after each so many steps: decisions in reinforcement learning, and
            optimiser steps elsewhere.
        states: states to look at.

    Raises:
        ValueError: if a number is not positive, the module has no features, there are no states, or features are not finite.
    """

    def __init__(self, every_env_steps: int = 1, states: int = 2_000) -> None:
        if min(every_env_steps, states) < 1:
            raise ValueError(f"RepresentationMonitor needs positive numbers, got {every_env_steps=} and {states=}")
        self.every_env_steps, self.states = every_env_steps, states
        self._next = 0
        self._spectra: dict[int, tuple[Tensor, Tensor]] = {}

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if not isinstance(pl_module, RepresentsStates):
            raise ValueError(
                f"RepresentationMonitor needs a module with representation(obs), which {type(pl_module).__name__} has not: "
                "leave the callback out"
            )

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        steps = steps_done(trainer, pl_module)
        if trainer.sanity_checking or steps < self._next:
            return
        self._next = (steps // self.every_env_steps + 1) * self.every_env_steps
        with torch.no_grad(), trainer.precision_plugin.forward_context():
            features = pl_module.representation(self._states(trainer, pl_module)).float()
        if not features.isfinite().all():
            env = getattr(trainer.datamodule, "env", type(pl_module).__name__)  # type: ignore[attr-defined]
            raise ValueError(f"the features of {env} at step {steps} hold NaN or infinity: lower the learning rate")
        spectrum, centred = (torch.linalg.svdvals(matrix) for matrix in (features, features - features.mean(dim=0)))
        self._spectra[steps] = spectrum.cpu(), centred.cpu()
        pl_module.log_dict(
            {
                "repr/effective_rank": effective_rank(spectrum),
                "repr/effective_rank_centered": effective_rank(centred),
                "repr/srank": srank(spectrum),
                "repr/dead_features": dead_features(features),
            },
            sync_dist=True,
        )

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._spectra and trainer.is_global_zero:
            with figure_style():
                publish_figure(trainer, spectrum_figure(self._spectra), "spectrum")

    def state_dict(self) -> dict[str, Any]:
        return {"next": self._next, "spectra": self._spectra}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._next, self._spectra = state_dict["next"], state_dict["spectra"]

    def _states(self, trainer: Trainer, pl_module: LightningModule) -> Tensor:
        """Return the same states on all ranks, ``[states, n]``."""
        datamodule = trainer.datamodule  # type: ignore[attr-defined]
        if isinstance(datamodule, RemembersStates):
            states = trainer.strategy.broadcast(datamodule.newest_observations(self.states, pl_module.device))
        elif isinstance(held_out := getattr(datamodule, "val_set", None), HoldsStates):
            states = held_out.obs[: self.states]
        else:
            raise ValueError(
                "RepresentationMonitor finds no states: the data module needs newest_observations or a val_set with obs"
            )
        return states.to(pl_module.device)


def effective_rank(singular_values: Tensor) -> Tensor:
    """Return the exponential of the entropy of the normalised singular values, 0 if all are 0; a scalar."""
    shares = singular_values / singular_values.sum().clamp_min(torch.finfo(singular_values.dtype).tiny)
    return torch.special.entr(shares).sum().exp() * (shares > 0).any()


def srank(singular_values: Tensor, share: float = SRANK_SHARE) -> Tensor:
    """Return the number of singular values, the largest first, that reach this share of their sum; a scalar."""
    reached = singular_values.cumsum(0) < share * singular_values.sum()
    return reached.sum().float() + (singular_values > 0).any()


def dead_features(features: Tensor, share: float = DEAD_SHARE) -> Tensor:
    """Return the share of columns whose deviation is at most this share of the root mean square of all entries; a scalar."""
    size = features.square().mean().sqrt()
    return (features.std(dim=0, correction=0) <= share * size).float().mean()
