"""Images or latents of an autoencoder that were computed beforehand, in memory-mapped arrays."""

from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from datamodules.base import LeydenDataModule
from datamodules.checks import check_positive
from datamodules.labelled_images import SeededImages
from datamodules.roots import require_data


class ImageLatentDataModule(LeydenDataModule):
    """Labelled arrays ``[C, H, W]`` from a folder, read from disk a batch at a time.

    ========================== =====================================================================
    file                       content
    ========================== =====================================================================
    ``train_latents.npy``      ``[n, C, H, W]`` of any real type, such as float16
    ``train_labels.npy``       whole numbers from 0 to ``num_classes - 1``, ``[n]``
    ``val_…``, ``test_…``      the same; without a test set there is no test
    ========================== =====================================================================

    A batch is that of :class:`~datamodules.labelled_images.LabelledImageDataModule`; its ``image`` is ``scale * (latent - shift)``,
    which should have about zero mean and unit deviation.

    Args:
        folder: the folder, also looked for in the data folders; ``random``: a few random arrays, to try the machinery.
        channels: C.
        image_size: H and W.
        num_classes: classes.
        scale: factor, such as 0.18215 for the autoencoder of Stable Diffusion.
        shift: what is subtracted before.
        batch_size: global batch size.
        eval_batch_size: global batch size of validation, test and prediction; default ``batch_size``.
        eval_images: images of validation and of test at most, the first ones; None: all.
        num_workers: loader processes per rank.
        seed: seed of the data order and of the training seeds.
        root: folder that is searched first for a relative ``folder``.

    Raises:
        ValueError: if a number is not positive.
    """

    smoke: ClassVar[dict[str, Any]] = {
        "folder": "random",
        **{"channels": 2, "image_size": 8, "num_classes": 10, "eval_images": 8},
        **{"batch_size": 8, "eval_batch_size": 8, "num_workers": 0},
    }

    def __init__(
        self,
        folder: str,
        channels: int = 4,
        image_size: int = 32,
        num_classes: int = 1000,
        scale: float = 0.18215,
        shift: float = 0.0,
        batch_size: int = 256,
        eval_batch_size: int | None = None,
        eval_images: int | None = None,
        num_workers: int = 0,
        seed: int = 0,
        root: str | None = None,
    ) -> None:
        super().__init__(batch_size, eval_batch_size, num_workers, seed)
        check_positive(channels=channels, image_size=image_size, num_classes=num_classes, eval_images=eval_images, scale=scale)
        self.folder, self.root, self.eval_images = folder, root, eval_images
        self.channels, self.image_size, self.num_classes = channels, image_size, num_classes
        self.scale, self.shift = scale, shift

    def setup(self, stage: str) -> None:
        """Map the arrays into memory.

        Raises:
            FileNotFoundError: if a file is missing.
            ValueError: if arrays have another shape than was said, or a class is out of range.
        """
        self.train_set = self._split("train", self.seed)
        self.val_set = self._split("val", limit=self.eval_images)
        has_test = self.folder == "random" or self._find("train", "latents").with_name("test_latents.npy").exists()
        self.test_set = self._split("test", limit=self.eval_images) if has_test else None

    def model_arguments(self) -> dict[str, Any]:
        return {"image_size": self.image_size, "channels": self.channels, "num_classes": self.num_classes}

    def labelled_images(self, split: str) -> tuple[Tensor, Tensor]:
        """Return all arrays of ``train``, ``val`` or ``test``, float32 ``[n, C, H, W]``, and their classes, ``[n]``."""
        chosen = getattr(self, f"{split}_set")
        return torch.from_numpy(chosen.prepare(chosen.images)), torch.from_numpy(chosen.labels)

    def _split(self, split: str, seed: int | None = None, limit: int | None = None) -> SeededImages:
        shape = (self.channels, self.image_size, self.image_size)
        if self.folder == "random":
            random = np.random.default_rng([*split.encode()])
            latents, labels = random.standard_normal((64, *shape), dtype=np.float32), random.integers(self.num_classes, size=64)
        else:
            latents, labels = (np.load(self._find(split, kind), mmap_mode="r") for kind in ("latents", "labels"))
        if latents.shape[1:] != shape or labels.shape != latents.shape[:1] or labels.dtype.kind not in "iu":
            raise ValueError(
                f"the {split} set of {self.folder} has {latents.dtype} latents {latents.shape} and {labels.dtype} labels "
                f"{labels.shape}, expected [n, {', '.join(map(str, shape))}] and whole numbers [n]: "
                "give its channels and image_size, or write it anew"
            )
        labels = np.array(labels[:limit], dtype=np.int64)
        if labels.min() < 0 or labels.max() >= self.num_classes:
            raise ValueError(
                f"the {split} labels of {self.folder} go from {labels.min()} to {labels.max()}: give num_classes, from 0 on"
            )
        return SeededImages(latents[:limit], labels, partial(standardised, scale=self.scale, shift=self.shift), seed)

    def _find(self, split: str, kind: str) -> Path:
        return require_data(str(Path(self.folder) / f"{split}_{kind}.npy"), self.root)


def standardised(latents: np.ndarray, scale: float, shift: float) -> np.ndarray:
    """Return ``scale * (latents - shift)``, float32."""
    return np.float32(scale) * (latents.astype(np.float32) - np.float32(shift))
