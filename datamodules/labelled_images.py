"""Small grey images in [-1, 1] with their classes, for generative models."""

from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from datamodules.base import BatchKey, LeydenDataModule
from datamodules.checks import check_positive
from datamodules.images import CLASSES, SIDES, cut_splits, load_images, prepare_images


class SeededImages:
    """Labelled images, each with a seed for whatever is random about it.

    Args:
        images: ``[n, ...]``.
        labels: int64, shape ``[n]``.
        prepare: makes float32 ``[m, C, H, W]`` of m of the images.
        seed: seed of the seeds; None: the seed of an image is its number.
    """

    def __init__(
        self, images: np.ndarray, labels: np.ndarray, prepare: Callable[[np.ndarray], np.ndarray], seed: int | None = None
    ) -> None:
        self.images, self.labels, self.prepare, self.seed = images, labels, prepare, seed

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, key: BatchKey) -> dict[str, Tensor]:
        """Return ``image`` float32 ``[local batch, C, H, W]``, ``label`` and ``seed`` int64 ``[local batch]``."""
        indices = key.local_indices
        return {
            "image": torch.from_numpy(self.prepare(self.images[indices])),
            "label": torch.from_numpy(self.labels[indices]),
            "seed": torch.from_numpy(key.seeds(self.seed)),
        }


def scaled(images: np.ndarray, size: int) -> np.ndarray:
    """Scale 0..255 to [-1, 1] and put black pixels around: float32 ``[n, 1, size, size]``; an odd one goes below and right."""
    before = (size - images.shape[1]) // 2
    after = size - images.shape[1] - before
    padded = np.pad(images, ((0, 0), (before, after), (before, after)))
    return (padded.astype(np.float32) / 127.5 - 1)[:, None]


class LabelledImageDataModule(LeydenDataModule):
    """Digits or garments with their classes, in [-1, 1].

    The training set is the first ``train_size`` images of the official training set in a random order that ``generator_seed``
    fixes, the validation set the last ``val_size`` of it, the test set the first ``test_size`` of the official test set.

    Each image of a batch has a ``seed``: in training a new one in each epoch, in validation and test its number. What a model makes
    of it is then the same for any batch size and number of processes.

    Args:
        variant: ``mnist``, ``fashion`` or ``digits8`` (8 x 8 digits of scikit-learn, 1 297 for training and validation, 500 for
            the test).
        pad_to: side of the images with black pixels around them, such as 32 for 28; None: as they are.
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
        ValueError: if the variant is unknown or a size does not fit.
    """

    smoke = {
        "train_size": 32,
        "val_size": 8,
        "test_size": 8,
        "batch_size": 8,
        "eval_batch_size": 8,
        "num_workers": 0,
    }

    train_set: SeededImages
    val_set: SeededImages
    test_set: SeededImages

    def __init__(
        self,
        variant: Literal["mnist", "fashion", "digits8"] = "digits8",
        pad_to: int | None = None,
        train_size: int | None = None,
        val_size: int = 200,
        test_size: int | None = None,
        batch_size: int = 64,
        eval_batch_size: int | None = None,
        num_workers: int = 0,
        seed: int = 0,
        generator_seed: int = 0,
        root: str | None = None,
    ) -> None:
        super().__init__(batch_size, eval_batch_size, num_workers, seed)
        if variant not in SIDES:
            raise ValueError(f"variant={variant!r} is unknown, use {', '.join(SIDES)}")
        if pad_to is not None and pad_to < SIDES[variant]:
            raise ValueError(f"pad_to={pad_to} is less than the {SIDES[variant]} pixels of {variant}: use at least those")
        check_positive(train_size=train_size, val_size=val_size, test_size=test_size)
        self.variant, self.root, self.generator_seed = variant, root, generator_seed
        self.size = SIDES[variant] if pad_to is None else pad_to
        self.train_size, self.val_size, self.test_size = train_size, val_size, test_size

    def prepare_data(self) -> None:
        """Download the images if they are in none of the data folders."""
        prepare_images(self.variant, self.root)

    def setup(self, stage: str) -> None:
        """Read the images into memory and split them."""
        sizes = (self.train_size, self.val_size, self.test_size)
        splits = cut_splits(load_images(self.variant, self.root), self.variant, *sizes, self.generator_seed)
        prepare = partial(scaled, size=self.size)
        self.train_set = SeededImages(*splits["train"], prepare, self.seed)
        self.val_set, self.test_set = (SeededImages(*splits[split], prepare) for split in ("val", "test"))

    def model_arguments(self) -> dict[str, int]:
        return {"image_size": self.size, "channels": 1, "num_classes": CLASSES}

    def labelled_images(self, split: str) -> tuple[Tensor, Tensor]:
        """Return all images of ``train``, ``val`` or ``test``, float32 ``[n, 1, size, size]``, and their classes, ``[n]``."""
        chosen: SeededImages = getattr(self, f"{split}_set")
        return torch.from_numpy(chosen.prepare(chosen.images)), torch.from_numpy(chosen.labels)
