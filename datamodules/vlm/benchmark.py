"""A vision-language benchmark as a test set."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from PIL import Image

from datamodules.base import BatchKey, LeydenDataModule
from datamodules.checks import check_positive
from datamodules.roots import data_folders, find_data
from datamodules.vlm.benchmark_files import BENCHMARKS, Question


class BenchmarkQuestions:
    """Questions with their images, which are opened when a batch is made.

    Args:
        questions: what is asked.
        rows: number of each question in the official file, int64 ``[n]``.
        images: folder of the images; None leaves them out.
        transform: makes what a batch holds of an RGB image.
        tree: what to show if an image is missing.

    Returns, for a key: the dict that :class:`BenchmarkDataModule` describes.
    """

    def __init__(
        self, questions: list[Question], rows: np.ndarray, images: Path | None, transform: Callable[[Any], Any] | None, tree: str
    ) -> None:
        self.questions, self.rows, self.images, self.transform, self.tree = questions, rows, images, transform, tree

    def __len__(self) -> int:
        return len(self.questions)

    def __getitem__(self, key: BatchKey) -> dict[str, Any]:
        chosen = [self.questions[i] for i in key.local_indices]
        batch: dict[str, Any] = {
            "index": torch.from_numpy(self.rows[key.local_indices]),
            "id": [question.id for question in chosen],
            "question": [question.text for question in chosen],
            "image_file": [question.image for question in chosen],
        }
        if self.images is not None:
            batch["image"] = [self._image(question.image) for question in chosen]
        return batch | {name: [question.columns[name] for question in chosen] for name in chosen[0].columns}

    def _image(self, name: str | None) -> Any:
        if name is None or self.images is None:
            return None
        try:
            with Image.open(self.images / name) as file:
                image = file.convert("RGB")
        except FileNotFoundError as error:
            raise FileNotFoundError(f"the image {name} is missing\n{self.tree}") from error
        return self.transform(image) if self.transform else image


class BenchmarkDataModule(LeydenDataModule):
    """The questions of a benchmark, in the order of its official file, for ``test`` and ``predict``.

    A batch is a dict of B entries each:

    ============== ==============================================================================================================
    key            content
    ============== ==============================================================================================================
    ``index``      number of the question in the file, from 0, int64 ``[B]``
    ``id``         the benchmark's own name of it
    ``question``   text
    ``image_file`` file of the image, None if the question has none
    ``image``      RGB image of PIL or what ``transform`` makes of it, None if the question has none; without ``images`` the
                   key is absent
    ``label``      ``yes`` or ``no`` (POPE, AMBER's discriminative part)
    ``type``       kind of question (AMBER's discriminative part)
    ``truth``      objects in the image, and ``lures``, objects that people expect there (AMBER's generative part)
    ``record``     the row of the file (HallusionBench, MMHal-Bench)
    ============== ==============================================================================================================

    On R processes each gets every R-th row of a batch, and no question occurs twice.

    Args:
        name: ``pope_coco_random``, ``pope_coco_popular``, ``pope_coco_adversarial``, the same with ``gqa`` or ``aokvqa`` for
            ``coco``, ``amber_generative``, ``amber_discriminative`` (or a part of it: ``amber_existence``, ``amber_attribute``,
            ``amber_relation``), ``hallusionbench``, ``mmhal`` or ``chair``.
        root: data folder that is searched first for the annotation files; see ``docs/data.md`` for where they belong.
        images: your folder of the benchmark's images, which are not shipped; None leaves them out of the batches.
        limit: questions at most; None: all.
        limit_seed: draws these questions at random, in the order of the file; None takes the first.
        transform: makes what a batch holds of an image, such as a processor of a vision encoder.
        batch_size: global batch size.
        num_workers: loader processes per rank, which open the images.

    Raises:
        ValueError: if the name is unknown or ``limit`` is not positive.
    """

    test_set: BenchmarkQuestions
    smoke = {"limit": 8, "batch_size": 4, "num_workers": 0}

    def __init__(
        self,
        name: str = "pope_coco_random",
        root: str | None = None,
        images: str | None = None,
        limit: int | None = None,
        limit_seed: int | None = None,
        transform: Callable[[Any], Any] | None = None,
        batch_size: int = 8,
        num_workers: int = 0,
    ) -> None:
        super().__init__(batch_size, num_workers=num_workers)
        if name not in BENCHMARKS:
            raise ValueError(f"name={name!r} is no benchmark, use one of {', '.join(BENCHMARKS)}")
        check_positive(limit=limit)
        self.name, self.root, self.limit, self.limit_seed, self.transform = name, root, limit, limit_seed, transform
        self.benchmark = BENCHMARKS[name]
        self.images = Path(images).expanduser() if images else None

    @property
    def benchmark_folder(self) -> Path:
        """Folder of the annotation files.

        Raises:
            FileNotFoundError: if a file is missing; shows the expected tree.
        """
        return self._files()[0].parent

    def model_arguments(self) -> dict[str, Any]:
        """Name of the benchmark and the folder of its annotation files, for a model that scores it."""
        return super().model_arguments() | {"benchmark": self.name, "benchmark_folder": str(self.benchmark_folder)}

    def setup(self, stage: str) -> None:
        """Read the annotation files.

        Raises:
            FileNotFoundError: if a file or the folder of images is missing; shows the expected tree.
        """
        questions = self.benchmark.read(*self._files())
        if self.images is not None and not self.images.is_dir():
            raise FileNotFoundError(f"images={str(self.images)!r} is no folder\n{self.tree()}")
        rows = np.arange(len(questions))
        if self.limit is not None and self.limit < len(rows):
            if self.limit_seed is None:
                rows = rows[: self.limit]
            else:
                rows = np.sort(np.random.default_rng(self.limit_seed).choice(len(rows), self.limit, replace=False))
        self.test_set = BenchmarkQuestions([questions[i] for i in rows], rows, self.images, self.transform, self.tree())

    @property
    def ids(self) -> list[int | str]:
        """Ids of the questions in the order of the file, for :mod:`datamodules.vlm.answers`."""
        return [question.id for question in self.test_set.questions]

    def tree(self) -> str:
        """Return the files and images that the benchmark expects, each with what was found."""
        lines = [f"{self.name} expects these files in one of {', '.join(map(str, data_folders(self.root)))} (`root`, LEYDEN_DATA):"]
        lines += [f"    {file}{'' if find_data(file, self.root) else '    <- missing'}" for file in self.benchmark.files]
        lines += [f"from {self.benchmark.source}, and in the folder that `images` names:", f"    {self.benchmark.images}"]
        return "\n".join(lines)

    def train_dataloader(self) -> NoReturn:
        raise ValueError(f"{self.name} is a benchmark: there is nothing to train on, use `test` or `predict`")

    def val_dataloader(self) -> NoReturn:
        raise ValueError(f"{self.name} is a benchmark: it has no validation set, use `test` or `predict`")

    def _files(self) -> list[Path]:
        found = [find_data(file, self.root) for file in self.benchmark.files]
        present = [path for path in found if path is not None]
        if len(present) < len(found):
            raise FileNotFoundError(f"annotation files of a benchmark are missing\n{self.tree()}")
        return present
