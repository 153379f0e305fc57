"""Methods that count their progress in something else than optimiser steps, such as the steps of an environment."""

from typing import Any, Protocol, runtime_checkable

from lightning.pytorch import Trainer


@runtime_checkable
class LogsAtItsOwnStep(Protocol):
    """A module with steps of its own.

    Attributes:
        logger_step: the step of what is logged now.
        logger_steps: those of a whole run.
    """

    logger_step: int
    logger_steps: int


def steps_done(trainer: Trainer, pl_module: Any) -> int:
    """Return how far a run is: the module's own steps, or optimiser steps."""
    return pl_module.logger_step if isinstance(pl_module, LogsAtItsOwnStep) else trainer.global_step


def steps_in_all(trainer: Trainer, pl_module: Any) -> float:
    """Return how long a run is, in the same steps."""
    return pl_module.logger_steps if isinstance(pl_module, LogsAtItsOwnStep) else trainer.estimated_stepping_batches
