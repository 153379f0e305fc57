"""Keep the images that a test or a prediction makes: a file each, and a sheet of the first."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from callbacks.figure_style import figure_style
from callbacks.figures import publish_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class SampleFiles(Callback):
    """Save the images of a module whose steps return ``image`` ``[B, C, H, W]`` in [0, 1] and ``index`` ``[B]``.

    The files are ``<run folder>/samples/<index>.png``; each process writes its own. The figure ``samples`` shows the first ones.

    Args:
        shown: images on the sheet; 0: no sheet.
        columns: images side by side on it.

    Raises:
        ValueError: if a number does not fit, or the module returns no images.
    """

    def __init__(self, shown: int = 32, columns: int = 8) -> None:
        if shown < 0 or columns < 1:
            raise ValueError(f"SampleFiles needs shown >= 0 and columns >= 1, got {shown=} and {columns=}")
        self.shown, self.columns = shown, columns

    def on_test_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, *_: Any, **__: Any) -> None:
        self._save(trainer, pl_module, outputs)

    def on_predict_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, *_: Any, **__: Any) -> None:
        self._save(trainer, pl_module, outputs)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._draw(trainer)

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._draw(trainer)

    def _save(self, trainer: Trainer, pl_module: LightningModule, outputs: Any) -> None:
        from PIL import Image

        if not isinstance(outputs, dict) or not {"image", "index"} <= outputs.keys():
            raise ValueError(f"SampleFiles needs steps that return image and index, those of {type(pl_module).__name__} do not")
        folder = _folder(trainer)
        folder.mkdir(parents=True, exist_ok=True)
        pixels = (outputs["image"].detach().float().clamp(0, 1) * 255).round().to("cpu", torch.uint8)
        for image_HWC, index in zip(pixels.permute(0, 2, 3, 1).numpy(), outputs["index"].tolist(), strict=True):
            Image.fromarray(image_HWC.squeeze(-1) if image_HWC.shape[-1] == 1 else image_HWC).save(folder / f"{index:06d}.png")

    def _draw(self, trainer: Trainer) -> None:
        from PIL import Image

        trainer.strategy.barrier()
        if not self.shown or not trainer.is_global_zero:
            return
        files = sorted(_folder(trainer).glob("*.png"))[: self.shown]
        images = [torch.from_numpy(np.array(Image.open(file).convert("RGB"))).permute(2, 0, 1) / 255 for file in files]
        with figure_style():
            publish_figure(trainer, sheet_figure(torch.stack(images), self.columns), "samples")


def sheet_figure(image_nCHW: Tensor, columns: int) -> "Figure":
    """Draw images in [0, 1], row after row."""
    from matplotlib.figure import Figure
    from torchvision.utils import make_grid

    columns = min(columns, len(image_nCHW))
    sheet_CHW = make_grid(image_nCHW, nrow=columns, padding=1, pad_value=1.0)
    figure = Figure(figsize=(1.2 * columns, 1.2 * columns * sheet_CHW.shape[1] / sheet_CHW.shape[2]), layout="constrained")
    axes = figure.subplots()
    axes.imshow(sheet_CHW.permute(1, 2, 0).numpy(), interpolation="nearest")
    axes.set_axis_off()
    return figure


def _folder(trainer: Trainer) -> Path:
    return Path(trainer.default_root_dir) / "samples"
