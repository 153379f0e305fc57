"""What a generative model is asked for: seeds, with prompts, classes or images to begin from."""

from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from datamodules.base import BatchKey, LeydenDataModule

FORMATS = (".png", ".jpg", ".jpeg")


class Requests:
    """Requests in order: all samples of the first prompt or class, then those of the second.

    Args:
        seeds: seed of each of the n requests, int64 ``[n]``.
        columns: further things a batch holds, n of each.
        images: files of images to begin from, n of them; empty: none.
        image_size: side to which these are scaled.
    """

    def __init__(self, seeds: np.ndarray, columns: dict[str, list[Any]], images: list[Path], image_size: int) -> None:
        self.seeds, self.columns, self.images, self.image_size = seeds, columns, images, image_size

    def __len__(self) -> int:
        return len(self.seeds)

    def __getitem__(self, key: BatchKey) -> dict[str, Any]:
        """Return ``index`` and ``seed``, int64 ``[local batch]``, and what else there is: ``prompt``, ``label`` or ``image``."""
        rows = key.local_indices
        batch: dict[str, Any] = {"index": torch.from_numpy(rows), "seed": torch.from_numpy(self.seeds[rows])}
        batch |= {name: [values[row] for row in rows] for name, values in self.columns.items()}
        if self.images:
            batch["image"] = torch.stack([self._image(self.images[row]) for row in rows])
        return batch

    def _image(self, path: Path) -> Tensor:
        from PIL import Image

        with Image.open(path) as file:
            pixels = np.asarray(file.convert("RGB").resize((self.image_size, self.image_size)), dtype=np.float32)
        return torch.from_numpy(pixels / 255).permute(2, 0, 1)


class PromptDataModule(LeydenDataModule):
    """Requests for a pretrained generative model: there is nothing to train on.

    The s-th sample of each prompt, class or image has the seed ``first_seed + s``: different things are asked of the same noise,
    and results do not depend on batch size and number of processes.

    Args:
        prompts: texts.
        prompt_file: file with a text on each line, in the place of ``prompts``.
        labels: classes, for a model of classes.
        images: folder of images to begin from, in the order of their names: one for each prompt, or without prompts one a request.
        image_size: side to which these are scaled.
        samples: samples of each prompt, class or image; without any, samples.
        first_seed: first seed.
        batch_size: global batch size.

    Raises:
        ValueError: if things that exclude each other are given, or a number does not fit.
        FileNotFoundError: if the file or the folder does not exist or is empty.
    """

    test_set: Requests
    smoke = {"samples": 2, "batch_size": 2}

    def __init__(
        self,
        prompts: list[str] | None = None,
        prompt_file: str | None = None,
        labels: list[int] | None = None,
        images: str | None = None,
        image_size: int = 512,
        samples: int = 4,
        first_seed: int = 0,
        batch_size: int = 4,
    ) -> None:
        super().__init__(batch_size)
        if sum(each is not None for each in (prompts, prompt_file, labels)) > 1:
            raise ValueError("PromptDataModule takes only one of prompts, prompt_file and labels")
        if samples < 1 or image_size < 1:
            raise ValueError(f"PromptDataModule needs positive numbers, got {samples=} and {image_size=}")
        self.prompts, self.prompt_file, self.labels = prompts, prompt_file, labels
        self.images, self.image_size = images, image_size
        self.samples, self.first_seed = samples, first_seed

    def setup(self, stage: str) -> None:
        """Read the prompts and find the images."""
        prompts = self.prompts
        if self.prompt_file is not None:
            prompts = [line for line in self._existing(self.prompt_file).read_text().splitlines() if line.strip()]
        columns: dict[str, list[Any]] = {"prompt": prompts or [], "label": self.labels or []}
        files = []
        if self.images is not None:
            files = sorted(path for path in self._existing(self.images).iterdir() if path.suffix.lower() in FORMATS)
            if not files:
                raise FileNotFoundError(f"images={self.images!r} holds no PNG or JPEG files")
        given = {len(values) for values in (*columns.values(), files) if values}
        if len(given) > 1:
            raise ValueError(f"{len(files)} images do not fit {max(given - {len(files)})} prompts or labels: give one each")
        kinds = given.pop() if given else 1
        seeds = np.tile(np.arange(self.first_seed, self.first_seed + self.samples), kinds)
        repeated = {name: [value for value in values for _ in range(self.samples)] for name, values in columns.items() if values}
        self.test_set = Requests(seeds, repeated, [file for file in files for _ in range(self.samples)], self.image_size)

    def train_dataloader(self) -> NoReturn:
        raise ValueError("PromptDataModule has nothing to train on: use `test` or `predict`")

    def val_dataloader(self) -> NoReturn:
        raise ValueError("PromptDataModule has no validation set: use `test` or `predict`")

    def _existing(self, name: str) -> Path:
        path = Path(name).expanduser()
        if not path.exists():
            raise FileNotFoundError(f"{name} does not exist: give your own file of prompts or folder of images")
        return path
