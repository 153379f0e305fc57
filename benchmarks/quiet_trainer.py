"""A trainer for runs inside a calculation: on one CPU, without loggers, bars and lines."""

import logging
from typing import Any


def quiet_trainer(data: Any, epochs: int, **options: Any) -> Any:
    """Return a trainer with the settings that a graph's data ask for; gradients are clipped at 5, as in GESC's configs."""
    from lightning.pytorch import Trainer

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    return Trainer(
        max_epochs=epochs,
        gradient_clip_val=5.0,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **data.trainer_defaults(),
        **options,
    )
