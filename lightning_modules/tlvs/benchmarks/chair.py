"""CHAIR: objects that captions name and images do not show."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from lightning_modules.tlvs.benchmarks.lexicon import Lexicon
from lightning_modules.tlvs.benchmarks.same_length import check_same_length, check_texts
from lightning_modules.tlvs.benchmarks.words import tokenize

SUMS = ("captions", "hallucinated_captions", "mentions", "hallucinated_mentions", "true_objects", "recalled_objects", "words")


class CHAIR(Metric):
    r"""Share of hallucinated mentions and of captions with one, and what the captions do find.

    .. math::
        \text{CHAIR}_i = \frac{\#\text{mentions of absent objects}}{\#\text{mentions}}, \quad
        \text{CHAIR}_s = \frac{\#\text{captions with such a mention}}{\#\text{captions}}, \quad
        \text{recall} = \frac{\sum \#\text{objects found}}{\sum \#\text{objects}}

    Mentions count with repetition, objects once a caption. A caption with no mention, an empty one too, counts as a caption and
    finds nothing. A ratio whose denominator is 0 is NaN. A caption that says less hallucinates less: never show CHAIR without
    ``recall`` and ``length``. ``f1`` is the harmonic mean of :math:`1 - \text{CHAIR}_i` and recall.

    Args:
        lexicon: which words name which object.
        objects: names of the objects in each image by its number, as
            :func:`~lightning_modules.tlvs.benchmarks.coco_objects.coco_objects` returns them. With it :meth:`update` takes
            numbers of images, without it the names themselves.

    Source: Rohrbach et al. 2018 (arXiv 1809.02156).
    """

    batch_keys = ("id",)
    full_state_update = False
    higher_is_better = False

    def __init__(self, lexicon: Lexicon, objects: Mapping[int, AbstractSet[str]] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.lexicon, self.objects = lexicon, objects
        for name in SUMS:
            self.add_state(name, torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")

    def update(self, captions: Sequence[str], images: Sequence[int] | Tensor | Sequence[Iterable[str]]) -> None:
        """Add a batch.

        Args:
            captions: generated texts.
            images: number of each image; or, without ``objects``, the names of what each image shows.

        Raises:
            ValueError: if there are not as many images as captions, an image is unknown, or a name is none of the lexicon's.
        """
        check_texts(captions, "captions")
        check_same_length(captions=captions, images=images)
        keys = images.tolist() if isinstance(images, Tensor) else images
        totals = [[0] * len(SUMS)]
        for caption, key in zip(captions, keys, strict=True):
            true = self._true_objects(key)
            mentioned = self.lexicon.mentions(caption)
            absent = sum(name not in true for name in mentioned)
            found = len(true.intersection(mentioned))
            totals.append([1, int(absent > 0), len(mentioned), absent, len(true), found, len(tokenize(caption))])
        for name, total in zip(SUMS, torch.tensor(totals, device=self.device).sum(dim=0), strict=True):
            setattr(self, name, getattr(self, name) + total)

    def compute(self) -> dict[str, Tensor]:
        """Return ``chair_s``, ``chair_i``, ``recall``, ``f1`` (each in [0, 1]) and the mean ``length`` in words."""
        captions, hallucinated, mentions, absent, true, found, words = (getattr(self, name) for name in SUMS)
        precision, recall = 1 - absent / mentions, found / true
        return {
            "chair_s": hallucinated / captions,
            "chair_i": absent / mentions,
            "recall": recall,
            "f1": 2 * precision * recall / (precision + recall),
            "length": words / captions,
        }

    def _true_objects(self, key: Any) -> set[str]:
        if self.objects is None:
            if isinstance(key, (int, str)):
                raise ValueError(f"{key!r} is no list of objects: give CHAIR the `objects` of each image, or names to update()")
            names = set(key)
        elif key in self.objects:
            names = set(self.objects[key])
        else:
            raise ValueError(f"image {key} is not among the {len(self.objects)} images whose objects CHAIR knows")
        unknown = names.difference(self.lexicon.objects)
        if unknown:
            raise ValueError(f"{sorted(unknown)[0]!r} is none of the lexicon's {len(self.lexicon.objects)} objects")
        return names
