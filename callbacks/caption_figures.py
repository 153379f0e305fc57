"""Images with what is there and what a model says about them."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from callbacks.figures import publish_figure

SHOWN = ("pixels", "objects", "colours")


class CaptionFigures(Callback):
    """Draw the first images of each test set with their captions and those of the model: ``captions`` and ``captions_<suite>``.

    The module's ``test_step`` returns ``generated``, ids of captions ``[B, T]``; where it does not, nothing is drawn. The data
    module draws: its ``plot`` takes ``pixels``, ``objects`` and ``colours`` of a batch, and ``generated``.

    Args:
        images: how many.

    Raises:
        ValueError: if the number is not positive, or the data module cannot draw.
    """

    def __init__(self, images: int = 8) -> None:
        if images < 1:
            raise ValueError(f"CaptionFigures needs a positive number of images, got {images}")
        self.images = images

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        if not hasattr(data, "plot"):
            raise ValueError(f"CaptionFigures needs a data module with `plot`, which {type(data).__name__} has not: leave it out")
        self._names = ["captions", *(f"captions_{suite}" for suite in data.suite_names())]

    def on_test_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if batch_idx or not trainer.is_global_zero or "generated" not in (outputs or {}):
            return
        sample = {name: batch[name][: self.images] for name in SHOWN} | {"generated": outputs["generated"][: self.images]}
        figure = trainer.datamodule.plot(sample)  # type: ignore[attr-defined]
        publish_figure(trainer, figure, self._names[dataloader_idx])
