"""Small grey images as sequences of levels of grey, row by row."""

from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from datamodules.base import LeydenDataModule
from datamodules.checks import check_positive
from datamodules.images import SIDES, cut_splits, load_images, prepare_images
from datamodules.tokens.token_sets import StoredTokens

GREYS = {"digits8": 17, "mnist": 256, "fashion": 256}
WHITE = 255


class DigitTokensDataModule(LeydenDataModule):
    r"""Digits whose pixels are cut into a few levels of grey; a token a pixel.

    .. math:: \text{token} = \lfloor v \cdot \text{levels} / G \rfloor, \qquad v \in \{0, \dots, G - 1\}

    with G = 17 for scikit-learn's digits and 256 for the others. A batch is ``{"tokens": int64 [B, D], "seed": int64 [B]}``; the
    seed is what else is random about an image is made of, in training a new one in each epoch. The splits are those of
    :class:`~datamodules.labelled_images.LabelledImageDataModule`.

    Args:
        variant: ``digits8`` (8 x 8 digits of scikit-learn), ``mnist`` or ``fashion``.
        levels: levels of grey, which are the tokens.
        train_size: number of training images; default all but the validation images.
        val_size: number of validation images.
        test_size: number of test images; default all.
        batch_size: global batch size.
        eval_batch_size: global batch size of validation, test and prediction; default ``batch_size``.
        num_workers: loader processes per rank.
        seed: seed of the data order and of the training seeds.
        generator_seed: seed of the split, apart from ``seed`` so that runs of several seeds share their data.
        root: folder that is searched first for the images and keeps downloaded ones; default the user's cache folder.

    Raises:
        ValueError: if the variant is unknown or a number does not fit.
    """

    smoke: ClassVar[dict[str, Any]] = {
        **{"train_size": 32, "val_size": 8, "test_size": 8},
        **{"batch_size": 8, "eval_batch_size": 8, "num_workers": 0},
    }

    def __init__(
        self,
        variant: Literal["digits8", "mnist", "fashion"] = "digits8",
        levels: int = 4,
        train_size: int | None = None,
        val_size: int = 200,
        test_size: int | None = None,
        batch_size: int = 128,
        eval_batch_size: int | None = None,
        num_workers: int = 0,
        seed: int = 0,
        generator_seed: int = 0,
        root: str | None = None,
    ) -> None:
        super().__init__(batch_size, eval_batch_size, num_workers, seed)
        if variant not in GREYS:
            raise ValueError(f"variant={variant!r} is unknown, use {', '.join(GREYS)}")
        if not 2 <= levels <= GREYS[variant]:
            raise ValueError(f"levels={levels} must be from 2 to the {GREYS[variant]} greys of {variant}")
        check_positive(train_size=train_size, val_size=val_size, test_size=test_size)
        self.variant, self.levels, self.root, self.generator_seed = variant, levels, root, generator_seed
        self.sizes, self.side = (train_size, val_size, test_size), SIDES[variant]

    def prepare_data(self) -> None:
        """Download the images if they are in none of the data folders."""
        prepare_images(self.variant, self.root)

    def setup(self, stage: str) -> None:
        """Read the images into memory, cut them into tokens and split them."""
        splits = cut_splits(load_images(self.variant, self.root), self.variant, *self.sizes, self.generator_seed)
        self.labels = {split: labels for split, (_, labels) in splits.items()}
        sets = {
            split: StoredTokens(self.tokens_of(images), self.levels, self.seed if split == "train" else None)
            for split, (images, _) in splits.items()
        }
        self.train_set, self.val_set, self.test_set = sets["train"], sets["val"], sets["test"]

    def model_arguments(self) -> dict[str, Any]:
        """Size of the vocabulary and length of a sequence."""
        return {"vocab_size": self.levels, "length": self.side**2}

    def tokens_of(self, images_nHW: np.ndarray) -> np.ndarray:
        """Return the levels of images whose greys are stretched to 0..255, uint8 ``[n, H * W]``."""
        greys = GREYS[self.variant]
        values = np.rint(images_nHW.astype(np.float64) * (greys - 1) / WHITE)
        return (values * self.levels // greys).astype(np.uint8).reshape(len(images_nHW), -1)

    def as_images(self, tokens_nD: Tensor) -> Tensor:
        """Return the images of tokens, from -1 for the lowest level to 1 for the highest, float32 ``[n, 1, H, W]``."""
        return (2 * tokens_nD.float() / (self.levels - 1) - 1).unflatten(1, (1, self.side, self.side))

    def labelled_images(self, split: str) -> tuple[Tensor, Tensor]:
        """Return all images of ``train``, ``val`` or ``test`` as their tokens show them, and their classes, ``[n]``."""
        chosen: StoredTokens = getattr(self, f"{split}_set")
        return self.as_images(torch.from_numpy(chosen.tokens_nD)), torch.from_numpy(self.labels[split])
