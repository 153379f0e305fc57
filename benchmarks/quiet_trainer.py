"""A trainer for runs inside a calculation: on one CPU, without loggers, bars and lines."""

import logging
from typing import Any


def quiet_trainer(data: Any, **options: Any) -> Any:
    """Return a trainer with the settings that the data ask for, changed by ``options``."""
    from lightning.pytorch import Trainer

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    quiet = {"accelerator": "cpu", "devices": 1, "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return Trainer(**{**data.trainer_defaults(), **quiet, **options})
