"""The one way for a figure to leave a callback: PNG in the run folder, and every image logger that is on."""

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from lightning.pytorch import Trainer
from lightning.pytorch.loggers import TensorBoardLogger, WandbLogger

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def publish_figure(trainer: Trainer, figure: "Figure", name: str) -> Path | None:
    """Save ``figure`` and hand it to the loggers, then close it; only rank zero does anything.

    The file is ``<trainer.default_root_dir>/figures/<name>_<global step>.png``. It is written under a temporary name and renamed,
    so that a reader never sees half a picture. TensorBoard and W&B receive it as ``figures/<name>`` at the same step.

    Args:
        trainer: the trainer whose run folder and loggers are used.
        figure: a figure made with ``matplotlib.figure.Figure`` (no window system, no global state) or with pyplot.
        name: letters, digits, ``-`` and ``_``.

    Returns:
        The path of the PNG, or ``None`` on the other ranks.

    Raises:
        ValueError: if ``name`` cannot be part of a file name.
    """
    if not re.fullmatch(r"[\w-]+", name):
        raise ValueError(f"figure name {name!r} becomes a file name: use letters, digits, '-' and '_' only")
    path = None
    if trainer.is_global_zero:
        step = trainer.global_step
        image = _rasterise(figure)
        path = _save_png(image, Path(trainer.default_root_dir) / "figures" / f"{name}_{step}.png")
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoardLogger):
                logger.experiment.add_image(f"figures/{name}", image, step, dataformats="HWC")
            elif isinstance(logger, WandbLogger):
                logger.log_image(f"figures/{name}", [str(path)], step)
    _close(figure)
    return path


def _rasterise(figure: "Figure") -> np.ndarray:
    """Return the figure as RGB bytes, shape ``[height, width, 3]``."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _save_png(image: np.ndarray, path: Path) -> Path:
    """Write ``image`` so that ``path`` is either absent or complete."""
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    Image.fromarray(image).save(temporary, format="PNG")
    temporary.replace(path)
    return path


def _close(figure: "Figure") -> None:
    """Free the figure; pyplot keeps a list of its own figures and is told."""
    pyplot: Any = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close(figure)
    figure.clear()
