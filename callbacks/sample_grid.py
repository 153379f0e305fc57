"""Draw what a model of images makes of each class."""

from typing import Any, Protocol, runtime_checkable

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from callbacks.diffusion_figures import decile_figure, sample_figure
from callbacks.figure_style import figure_style
from callbacks.figures import publish_figure


@runtime_checkable
class MakesImages(Protocol):
    """A module that makes an image in [-1, 1] of a class from a seed, ``[B, C, H, W]``."""

    num_classes: int

    def sample(self, label_B: Tensor, seed_B: Tensor) -> Tensor: ...


class SampleGrid(Callback):
    """Draw images of each class when a test ends, as the figure ``samples``: a row a class, the same noise in a column.

    All processes make them, the first one draws.

    Args:
        samples: images of each class.
        classes: draw only the first so many classes.
        seed: number of the first noise.

    Raises:
        ValueError: if a number is not positive, or the module makes no images.
    """

    def __init__(self, samples: int = 10, classes: int = 10, seed: int = 0) -> None:
        if samples < 1 or classes < 1:
            raise ValueError(f"SampleGrid needs positive numbers, got {samples=} and {classes=}")
        self.samples, self.classes, self.seed = samples, classes, seed

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if not isinstance(pl_module, MakesImages):
            raise ValueError(f"SampleGrid needs a module with sample(label, seed), which {type(pl_module).__name__} has not")

    def on_test_end(self, trainer: Trainer, pl_module: Any) -> None:
        classes = min(self.classes, pl_module.num_classes)
        label_B = torch.arange(classes, device=pl_module.device).repeat_interleave(self.samples)
        seed_B = torch.arange(self.seed, self.seed + self.samples, device=pl_module.device).repeat(classes)
        images = pl_module.sample(label_B, seed_B).unflatten(0, (classes, self.samples))
        if trainer.is_global_zero:
            with figure_style():
                publish_figure(trainer, sample_figure(images), "samples")


class TimeDecileFigure(Callback):
    """Draw, when a test ends, what the module logged for each tenth of the time: ``<name>_decile0`` to ``9``.

    The figure is ``time_deciles``. A module with a ``target`` has it as a line beside the active experts. What was not logged is
    left out; without anything there is no figure.
    """

    quantities = {"loss": "flow loss", "active": "active experts a token"}

    def on_test_end(self, trainer: Trainer, pl_module: Any) -> None:
        found = trainer.callback_metrics
        values = {
            label: [float(found[f"test/{name}_decile{place}"]) for place in range(10)]
            for name, label in self.quantities.items()
            if f"test/{name}_decile0" in found
        }
        if values and trainer.is_global_zero:
            target = getattr(pl_module, "target", None)
            with figure_style():
                lines = None if target is None else {self.quantities["active"]: target}
                publish_figure(trainer, decile_figure(values, lines), "time_deciles")
