"""The one way for a figure or an animation to leave a callback: a file in the run folder, and every logger that can show it."""

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from lightning.pytorch import Trainer
from lightning.pytorch.loggers import TensorBoardLogger, WandbLogger

from callbacks.own_steps import steps_done

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image as Picture


def publish_figure(trainer: Trainer, figure: "Figure", name: str) -> Path | None:
    """Save ``figure`` and hand it to the loggers, then close it; only rank zero does anything.

    The file is ``<trainer.default_root_dir>/figures/<name>_<step>.png``. It is written under a temporary name and renamed, so that
    a reader never sees half a picture. TensorBoard and W&B receive it as ``figures/<name>`` at the same step.

    Args:
        trainer: the trainer whose run folder and loggers are used.
        figure: a figure made with ``matplotlib.figure.Figure`` (no window system, no global state) or with pyplot.
        name: letters, digits, ``-`` and ``_``.

    Returns:
        The path of the PNG, or ``None`` on the other ranks.

    Raises:
        ValueError: if ``name`` cannot be part of a file name.
    """
    path = _figure_path(trainer, name, "png")
    if path is not None:
        from PIL import Image

        step = steps_done(trainer, trainer.lightning_module)
        image = rasterise(figure)
        _save(Image.fromarray(image), path)
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoardLogger):
                logger.experiment.add_image(f"figures/{name}", image, step, dataformats="HWC")
            elif isinstance(logger, WandbLogger):
                logger.log_image(f"figures/{name}", [str(path)], step)
    _close(figure)
    return path


def publish_animation(trainer: Trainer, frames: Iterable[np.ndarray], name: str, seconds_per_frame: float = 0.25) -> Path | None:
    """Save ``frames`` as an endless GIF beside the figures and hand it to the loggers; only rank zero does anything.

    The file is ``figures/<name>_<step>.gif`` in the run folder. W&B receives it as ``animations/<name>``; the other loggers
    cannot show it without further packages and get nothing.

    Args:
        trainer: the trainer whose run folder and loggers are used.
        frames: RGB pictures of one size, ``[height, width, 3]`` bytes, at least one; consumed on rank zero only.
        name: letters, digits, ``-`` and ``_``.
        seconds_per_frame: time that each frame stays; the last stays four times as long.

    Returns:
        The path of the GIF, or ``None`` on the other ranks.

    Raises:
        ValueError: if ``name`` cannot be part of a file name, or there is no frame.
    """
    path = _figure_path(trainer, name, "gif")
    if path is not None:
        from PIL import Image

        pictures = [Image.fromarray(frame) for frame in frames]
        if not pictures:
            raise ValueError(f"the animation {name!r} has no frame")
        first, *others = pictures
        milliseconds = round(1000 * seconds_per_frame)
        durations = [milliseconds] * len(others) + [4 * milliseconds]
        _save(first, path, save_all=True, append_images=others, duration=durations, loop=0)
        for logger in trainer.loggers:
            if isinstance(logger, WandbLogger):
                step = steps_done(trainer, trainer.lightning_module)
                logger.log_video(f"animations/{name}", [str(path)], step, format=["gif"])
    return path


def rasterise(figure: "Figure") -> np.ndarray:
    """Return the figure as RGB bytes, shape ``[height, width, 3]``."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _figure_path(trainer: Trainer, name: str, suffix: str) -> Path | None:
    """Return the file of this figure at this step on rank zero, ``None`` on the other ranks."""
    if not re.fullmatch(r"[\w-]+", name):
        raise ValueError(f"figure name {name!r} becomes a file name: use letters, digits, '-' and '_' only")
    if not trainer.is_global_zero:
        return None
    return Path(trainer.default_root_dir) / "figures" / f"{name}_{steps_done(trainer, trainer.lightning_module)}.{suffix}"


def _save(image: "Picture", path: Path, **options: Any) -> None:
    """Write a picture or an animation so that ``path`` is either absent or complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    image.save(temporary, format=path.suffix[1:].upper(), **options)
    temporary.replace(path)


def _close(figure: "Figure") -> None:
    """Free the figure; pyplot keeps a list of its own figures and is told."""
    pyplot: Any = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close(figure)
    figure.clear()
