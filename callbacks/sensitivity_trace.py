"""Where a vision-language model looks while it describes images, and how strongly it is steered there."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from callbacks.figure_style import figure_style
from callbacks.figures import publish_figure
from callbacks.sensitivity_figures import Word, lorenz_figure, strip_figure


class Trace(Protocol):
    """What happened at each of n words: ``tokens``, ``sensitivity``, ``entropy`` and ``strength``, ``[n]``."""

    tokens: Tensor
    sensitivity: Tensor
    entropy: Tensor
    strength: Tensor


@runtime_checkable
class Traced(Protocol):
    """A module that describes images and tells what happens at each word.

    ``words`` are the vocabulary and ``object_words`` the names of objects, in the order of their numbers; ``lorenz`` is the share
    of all sensitivity that the most sensitive steps hold, at equal distances from 0 to 100 % of the steps; empty if unknown.
    """

    words: Sequence[str]
    object_words: Sequence[str]
    lorenz: Sequence[float]

    def trace(self, batch: Any) -> Sequence[Trace]: ...


class SensitivityTrace(Callback):
    """Draw the first captions of a test set word by word (``trace``) and the Lorenz curve of the sensitivity (``lorenz``).

    Words that name objects which are not in the image are marked: the batch has ``objects``, numbers of objects ``[B, C]``.

    Args:
        images: captions to draw.
        loader: number of the test set.

    Raises:
        ValueError: if a number is out of range, or the module tells nothing.
    """

    def __init__(self, images: int = 4, loader: int = 1) -> None:
        if images < 1 or loader < 0:
            raise ValueError(f"SensitivityTrace needs a positive number of images and a test set from 0, got {images} and {loader}")
        self.images, self.loader = images, loader

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if not isinstance(pl_module, Traced):
            raise ValueError(
                f"SensitivityTrace needs a module with trace(), which {type(pl_module).__name__} has not: leave it out"
            )

    def on_test_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if batch_idx or dataloader_idx != self.loader or not trainer.is_global_zero or "answer" in batch:
            return
        first = {name: value[: self.images] if isinstance(value, Tensor) else value for name, value in batch.items()}
        captions = [
            words_of(trace, objects, pl_module.words, pl_module.object_words)
            for trace, objects in zip(pl_module.trace(first), first["objects"].cpu(), strict=True)
        ]
        with figure_style():
            publish_figure(trainer, strip_figure(captions), "trace")
            if pl_module.lorenz:
                publish_figure(trainer, lorenz_figure(pl_module.lorenz), "lorenz")


def words_of(trace: Trace, objects_C: Tensor, words: Sequence[str], object_words: Sequence[str]) -> list[Word]:
    """Return the words of a caption with what happened there."""
    there = {object_words[number] for number in torch.unique(objects_C).tolist() if number >= 0}
    values = zip(trace.tokens.tolist(), trace.sensitivity.tolist(), trace.entropy.tolist(), trace.strength.tolist(), strict=True)
    return [
        Word(words[token], sensitivity, entropy, strength, words[token] in object_words and words[token] not in there)
        for token, sensitivity, entropy, strength in values
    ]
