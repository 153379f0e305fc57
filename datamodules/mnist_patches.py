"""MNIST and its likes for agents that see a patch each, with corrupted copies of the test set."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from datamodules.base import BatchKey, LeydenDataModule
from datamodules.image_corruptions import add_noise, blank_blocks, block_grid, choose_blocks, pad_with_zeros
from datamodules.images import SIDES, cut_splits, load_images, prepare_images

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Corruption = Callable[[np.ndarray, np.ndarray], dict[str, np.ndarray]]


class PatchImages:
    """Labelled images, shrunk, scaled and corrupted a batch at a time.

    Args:
        images: uint8, shape ``[n, side, side]``.
        labels: int64, shape ``[n]``.
        size: side of the images that are handed out, a divisor of ``side``.
        corrupt: makes ``image`` (and more, if it likes) from the images in [0, 1] and their numbers; None leaves them alone.
    """

    def __init__(self, images: np.ndarray, labels: np.ndarray, size: int, corrupt: Corruption | None = None) -> None:
        self.images, self.labels, self.size, self.corrupt = images, labels, size, corrupt

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, key: BatchKey) -> dict[str, Tensor]:
        """Return ``image`` float32 ``[local batch, H, W]``, ``label`` int64 ``[local batch]`` and what the corruption adds."""
        indices = key.local_indices
        images = shrink(self.images[indices], self.size)
        arrays = self.corrupt(images, indices) if self.corrupt else {"image": images}
        return {name: torch.from_numpy(array) for name, array in {**arrays, "label": self.labels[indices]}.items()}


def shrink(images: np.ndarray, size: int) -> np.ndarray:
    """Average square cells of uint8 images ``[n, side, side]`` and scale by 1/255: float32 ``[n, size, size]`` in [0, 1]."""
    cell = images.shape[1] // size
    sums = images.reshape(len(images), size, cell, size, cell).sum(axis=(2, 4), dtype=np.int64)
    return (sums / (255 * cell**2)).astype(np.float32)


class MNISTPatchDataModule(LeydenDataModule):
    """Digits or garments in [0, 1], and test suites of corrupted images.

    Beside the clean test set there is one suite for each entry of ``pads``, ``drops`` and ``noises``. Its random numbers depend on
    ``generator_seed`` and the number of the image alone, so every model and every ``seed`` is tested on the same pixels. Drawing
    them anew for each batch costs no memory that grows with the set.

    The training set is the first ``train_size`` images of the official training set in a random order that ``generator_seed``
    fixes, the validation set the last ``val_size`` of it, the test set the first ``test_size`` of the official test set.

    Args:
        variant: ``mnist``, ``fashion`` or ``digits8`` (8 x 8 digits of scikit-learn, 1 297 for training and validation, 500 for
            the test).
        size: side of the images, a divisor of 28 (of 8 for ``digits8``), reached by averaging square cells; default: as they are.
        patch: side of the square blocks that ``drops`` blanks. Their centres are ``range(patch // 2, size, patch)``, row by row.
        train_size: number of training images; default all but the validation images.
        val_size: number of validation images.
        test_size: number of test images; default all.
        pads: suites ``pad4`` with a frame of so many zero pixels around each image of ``size``.
        drops: suites ``drop10`` in which each image loses this fraction of its blocks, rounded to whole ones.
        noises: suites ``noise0.1`` with Gaussian noise of this standard deviation, clipped to [0, 1].
        dropout_mode: ``zero_pixels``; or ``remove_agent``, which calls the suites ``drop10_removed`` and also tells the model by
            ``dropped``, bool ``[batch, blocks]``, which blocks are gone. Both blank the same blocks.
        batch_size: global batch size.
        eval_batch_size: global batch size of validation, test and prediction; default ``batch_size``.
        num_workers: loader processes per rank.
        seed: seed of the data order.
        generator_seed: seed of the split and of the corruptions, apart from ``seed`` so that runs of several seeds share
            their data.
        root: folder that is searched first for the images and keeps downloaded ones; default the user's cache folder.
    """

    smoke = {
        "train_size": 32,
        "val_size": 8,
        "test_size": 8,
        "batch_size": 8,
        "eval_batch_size": 8,
        "num_workers": 0,
    }

    def __init__(
        self,
        variant: Literal["mnist", "fashion", "digits8"] = "mnist",
        size: int | None = None,
        patch: int = 3,
        train_size: int | None = None,
        val_size: int = 5_000,
        test_size: int | None = None,
        pads: Sequence[int] = (),
        drops: Sequence[float] = (),
        noises: Sequence[float] = (),
        dropout_mode: Literal["zero_pixels", "remove_agent"] = "zero_pixels",
        batch_size: int = 128,
        eval_batch_size: int | None = None,
        num_workers: int = 0,
        seed: int = 0,
        generator_seed: int = 0,
        root: str | None = None,
    ) -> None:
        super().__init__(batch_size, eval_batch_size, num_workers, seed)
        if variant not in SIDES:
            raise ValueError(f"variant={variant!r} is unknown, use {', '.join(SIDES)}")
        if dropout_mode not in ("zero_pixels", "remove_agent"):
            raise ValueError(f"dropout_mode={dropout_mode!r} is unknown, use zero_pixels or remove_agent")
        side = SIDES[variant]
        size = side if size is None else size
        divisors = [number for number in range(1, side + 1) if side % number == 0]
        if size not in divisors:
            raise ValueError(f"size={size} does not divide the {side} pixels of {variant}: use {', '.join(map(str, divisors))}")
        if not 1 <= patch <= size:
            raise ValueError(f"patch={patch} does not fit images of {size} pixels: use 1 to {size}")
        for name, number in {"train_size": train_size, "val_size": val_size, "test_size": test_size}.items():
            if number is not None and number < 1:
                raise ValueError(f"{name}={number} must be at least 1")
        self.variant, self.size, self.patch, self.root = variant, size, patch, root
        self.train_size, self.val_size, self.test_size = train_size, val_size, test_size
        self.generator_seed = generator_seed
        self.corruptions = dict(
            [self._pad(pixels) for pixels in pads]
            + [self._drop(fraction, removed=dropout_mode == "remove_agent") for fraction in drops]
            + [self._noise(sigma) for sigma in noises]
        )
        if len(self.corruptions) < len(pads) + len(drops) + len(noises):
            raise ValueError(f"pads={list(pads)}, drops={list(drops)} and noises={list(noises)} give a suite twice: name each once")

    def suite_names(self) -> list[str]:
        """Names of the corrupted test sets, in the order of their loaders."""
        return list(self.corruptions)

    def prepare_data(self) -> None:
        """Download the images if they are in none of the data folders."""
        prepare_images(self.variant, self.root)

    def setup(self, stage: str) -> None:
        """Read the images into memory and split them."""
        sizes = (self.train_size, self.val_size, self.test_size)
        splits = cut_splits(load_images(self.variant, self.root), self.variant, *sizes, self.generator_seed)
        self.train_set, self.val_set, self.test_set = (PatchImages(*splits[split], self.size) for split in ("train", "val", "test"))
        self.test_suites = {name: PatchImages(*splits["test"], self.size, corrupt) for name, corrupt in self.corruptions.items()}

    def plot(self, sample: dict[str, Tensor]) -> "Figure":
        """Draw one image under the grid of its patches.

        Args:
            sample: ``image`` of shape ``[H, W]`` and, if known, the numbers ``label`` and ``prediction`` and ``dropped`` of shape
                ``[blocks]``.

        Returns:
            Figure whose title is green if the prediction is right and red if not; dropped blocks have a red cross.
        """
        from matplotlib.figure import Figure

        image = sample["image"].cpu().numpy()
        label, prediction = (int(sample[name]) if name in sample else None for name in ("label", "prediction"))
        height, width = image.shape
        rows, columns = block_grid(height, width, self.patch)
        bottom, right = rows * self.patch - 0.5, columns * self.patch - 0.5
        figure = Figure(figsize=(3.2, 3.4), layout="constrained")
        axes = figure.add_subplot()
        axes.set_axis_off()
        axes.imshow(image, cmap="gray", vmin=0.0, vmax=1.0)
        line_style: dict[str, Any] = {"color": "tab:blue", "linewidth": 0.6, "clip_on": False}
        axes.hlines(np.arange(rows + 1) * self.patch - 0.5, -0.5, right, **line_style)
        axes.vlines(np.arange(columns + 1) * self.patch - 0.5, -0.5, bottom, **line_style)
        if "dropped" in sample:
            row, column = np.divmod(np.flatnonzero(sample["dropped"].cpu().numpy()), columns)
            middle = (self.patch - 1) / 2
            axes.scatter(column * self.patch + middle, row * self.patch + middle, marker="x", color="tab:red", clip_on=False)
        words = [f"{name} {number}" for name, number in (("label", label), ("prediction", prediction)) if number is not None]
        judged = label is not None and prediction is not None
        axes.set_title(", ".join(words), color=("tab:green" if label == prediction else "tab:red") if judged else "black")
        return figure

    def _pad(self, pixels: int) -> tuple[str, Corruption]:
        if pixels < 1:
            raise ValueError(f"pads has {pixels}: a frame needs at least 1 pixel")
        return f"pad{pixels}", partial(_padded, pixels=pixels)

    def _drop(self, fraction: float, removed: bool) -> tuple[str, Corruption]:
        rows, columns = block_grid(self.size, self.size, self.patch)
        blocks = rows * columns
        if not 0 < fraction < 1:
            raise ValueError(f"drops has {fraction:g}: use fractions between 0 and 1, such as 0.1")
        dropped = round(fraction * blocks)
        if not 0 < dropped < blocks:
            raise ValueError(f"drops has {fraction:g}, which is {dropped} of {blocks} blocks: some must go and some must stay")
        name = f"drop{100 * fraction:g}"
        corrupt = partial(_blanked, patch=self.patch, blocks=blocks, dropped=dropped, seed=self._seed(name), removed=removed)
        return (f"{name}_removed" if removed else name), corrupt

    def _noise(self, sigma: float) -> tuple[str, Corruption]:
        if not sigma > 0:
            raise ValueError(f"noises has {sigma:g}: a standard deviation must be positive")
        name = f"noise{sigma:g}"
        return name, partial(_noisy, sigma=sigma, seed=self._seed(name))

    def _seed(self, name: str) -> tuple[int, int]:
        return self.generator_seed, crc32(name.encode())


def _padded(images: np.ndarray, indices: np.ndarray, pixels: int) -> dict[str, np.ndarray]:
    return {"image": pad_with_zeros(images, pixels)}


def _blanked(
    images: np.ndarray, indices: np.ndarray, patch: int, blocks: int, dropped: int, seed: tuple[int, int], removed: bool
) -> dict[str, np.ndarray]:
    mask = choose_blocks(blocks, dropped, seed, indices)
    blanked = {"image": blank_blocks(images, mask, patch)}
    return {**blanked, "dropped": mask} if removed else blanked


def _noisy(images: np.ndarray, indices: np.ndarray, sigma: float, seed: tuple[int, int]) -> dict[str, np.ndarray]:
    return {"image": add_noise(images, sigma, seed, indices)}
