"""What a test found for each sample, kept in a file, so that runs can be compared sample by sample."""

import csv
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

Row = tuple[str, int, str, float]


class TestOutcomes(Callback):
    """Write ``outcomes.csv`` into the run folder: a line for each test set, sample and outcome.

    The module's ``test_step`` returns ``outcomes``, a number for each sample by name, ``[B]``, and the batch has ``index``, the
    number of what each sample is about, ``[B]``: several questions about an image share one. Test sets are called as the data
    module's ``suite_names()`` say, the main one ``test``. Batches without outcomes are passed over.

    Raises:
        ValueError: if a batch with outcomes has no ``index``.
    """

    __test__ = False  # no test class, whatever its name says to pytest

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._rows: list[Row] = []
        self._names = ["test", *trainer.datamodule.suite_names()]  # type: ignore[attr-defined]

    def on_test_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        outcomes: Mapping[str, Tensor] = (outputs or {}).get("outcomes", {})
        if outcomes and "index" not in batch:
            raise ValueError("TestOutcomes needs batches with `index`, the number of what each sample is about")
        for name, value_B in outcomes.items():
            pairs = zip(batch["index"].tolist(), value_B.tolist(), strict=True)
            self._rows += [(self._names[dataloader_idx], index, name, value) for index, value in pairs]

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        parts: list[list[Row]] = [self._rows]
        if trainer.world_size > 1:
            parts = [[] for _ in range(trainer.world_size)]
            torch.distributed.all_gather_object(parts, self._rows)
        if trainer.is_global_zero and any(parts):
            _write(Path(trainer.default_root_dir) / "outcomes.csv", sorted(row for part in parts for row in part))


def _write(path: Path, rows: list[Row]) -> None:
    """Write the file so that it is either absent or complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("suite", "index", "outcome", "value"))
        writer.writerows((suite, index, name, f"{value:g}") for suite, index, name, value in rows)
    temporary.replace(path)
