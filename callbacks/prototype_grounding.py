"""Keep the prototypes of an actor on real states while it learns."""

from typing import Any, Protocol, cast

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor


class PrototypeActor(Protocol):
    """An actor whose prototypes stand for real states."""

    grounded: bool
    embeddings: Tensor

    def sync(self) -> Tensor: ...


class GroundsPrototypes(Protocol):
    """A module with such an actor.

    Attributes:
        actor: the actor.
        logger_step: decisions of all ranks so far.
    """

    actor: PrototypeActor
    logger_step: int

    def ground(self, states: Tensor) -> Any: ...


class PrototypeGrounding(Callback):
    """Place the prototypes on states of the replay when the random beginning is over, and again at regular intervals.

    Between two groundings encoder and prototypes drift apart. For every evaluation the prototypes are set to the embeddings of
    their states, and afterwards back, so that what is evaluated is what can be explained and training is not touched.

    All ranks ground on the candidates of rank zero, so that their prototypes stay equal.

    Args:
        every_env_steps: decisions between two groundings.
        candidates: states drawn from the replay each time; all of them while it holds no more.
        faithful_evaluation: evaluate with every prototype on its state.

    Raises:
        ValueError: if a number is not positive, or the module cannot ground.
    """

    def __init__(self, every_env_steps: int = 1_000, candidates: int = 4_096, faithful_evaluation: bool = True) -> None:
        if min(every_env_steps, candidates) < 1:
            raise ValueError(f"PrototypeGrounding needs positive numbers, got {every_env_steps=} and {candidates=}")
        self.every_env_steps, self.candidates, self.faithful_evaluation = every_env_steps, candidates, faithful_evaluation
        self._grounded_at: int | None = None
        self._drifted: Tensor | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if not hasattr(pl_module, "ground"):
            raise ValueError(f"PrototypeGrounding needs a module with ground(states), which {type(pl_module).__name__} has not")

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        steps = pl_module.logger_step
        if steps < trainer.datamodule.learning_starts:  # type: ignore[attr-defined]
            return
        if self._grounded_at is None or steps // self.every_env_steps > self._grounded_at // self.every_env_steps:
            self._ground(trainer, pl_module, steps)

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        if self._grounded_at is not None:
            self._ground(trainer, pl_module, pl_module.logger_step)

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: Any) -> None:
        if self.faithful_evaluation and pl_module.actor.grounded:
            self._drifted = pl_module.actor.sync()

    @torch.no_grad()
    def on_validation_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        if self._drifted is not None:
            pl_module.actor.embeddings.copy_(self._drifted)
            self._drifted = None

    def on_test_epoch_start(self, trainer: Trainer, pl_module: Any) -> None:
        if self.faithful_evaluation and pl_module.actor.grounded:
            pl_module.actor.sync()

    def state_dict(self) -> dict[str, Any]:
        return {"grounded_at": self._grounded_at}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._grounded_at = state_dict["grounded_at"]

    def _ground(self, trainer: Trainer, pl_module: LightningModule, steps: int) -> None:
        """Ground on states of rank zero's replay."""
        states = trainer.datamodule.observations(self.candidates, pl_module.device)  # type: ignore[attr-defined]
        states = trainer.strategy.broadcast(states)
        report = cast(GroundsPrototypes, pl_module).ground(states)
        self._grounded_at = steps
        if report is not None:
            entries = {"proto/drift": report.drift, "proto/ground_kl": report.kl}
            for logger in pl_module.loggers:
                logger.log_metrics(entries, step=steps)
