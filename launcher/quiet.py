"""Keep third-party advertising and harmless warnings off the terminal; a real warning still shows."""

import logging
import os
import warnings

HARMLESS = (
    "LightningCLI's args parameter is intended to run",
    r"The '\w+' does not have many workers",
    r"The number of training batches \(\d+\) is smaller than the logging interval",
    "Checkpoint directory .* exists and is not empty",
    "The `srun` command is available on your system but is not used",
    "isinstance.*LeafSpec",
    "Mismatch dtype between input and weight",
    "`_get_pg_default_device` will be deprecated",
    "Multiple backends are registered with this ProcessGroup",
    "`torch.jit.script` is deprecated",
)

ADVERTISING = (
    "💡 Tip",
    "GPU available: False",
    "Restoring states from the checkpoint",
    "`weights_only` was not set",
    "TPU available",
    "HPU available",
    "LOCAL_RANK: ",
    "You are using a CUDA device",
    "litlogger",
    "was configured so",
)

SPEAKERS = (
    "lightning.pytorch.utilities.rank_zero",
    "lightning.fabric.utilities.rank_zero",
    "lightning.pytorch.trainer.connectors.checkpoint_connector",
)


ROOMS = ("callbacks", "datamodules", "lightning_modules")
"""Packages of our own, whose messages show: what takes long says so."""


class _NoAdvertising(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not any(text in record.getMessage() for text in ADVERTISING)


def quiet() -> None:
    """Install the filters; call it before Lightning is imported."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for message in HARMLESS:
        warnings.filterwarnings("ignore", message=f".*{message}")
    for name in SPEAKERS:
        logging.getLogger(name).addFilter(_NoAdvertising())
    for room in map(logging.getLogger, ROOMS):
        room.setLevel(logging.INFO)
        room.handlers = [logging.StreamHandler()]
    warnings.formatwarning = _short_format


def _short_format(message: Warning | str, category: type[Warning], *_: object, **__: object) -> str:
    return f"warning: {message}\n"
