"""Lightning's file loggers, writing into a run folder and continuing there after a restart."""

import csv
import os
from typing import Any, cast

from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.loggers.csv_logs import ExperimentWriter
from lightning.pytorch.loggers.logger import rank_zero_experiment


class RunCSVLogger(CSVLogger):
    """Write ``metrics.csv`` into the run folder.

    Args:
        save_dir: the run folder; the launcher fills it in.
        resume_step: keep the rows of an existing file below this step; None starts a new file.
        flush_logs_every_n_steps: steps between two writes to disk.
    """

    def __init__(self, save_dir: str | None = None, resume_step: int | None = None, flush_logs_every_n_steps: int = 100) -> None:
        super().__init__(save_dir or ".", name="", version="", flush_logs_every_n_steps=flush_logs_every_n_steps)
        self._resume_step = resume_step

    @property
    @rank_zero_experiment
    def experiment(self) -> ExperimentWriter:
        if self._experiment is None:
            os.makedirs(self.log_dir, exist_ok=True)
            self._experiment = ContinuedWriter(self.log_dir, self._resume_step)
        return cast(ExperimentWriter, self._experiment)


class ContinuedWriter(ExperimentWriter):
    """Keep the rows that a checkpoint vouches for, drop later ones, and pass over a row that is logged twice."""

    def __init__(self, log_dir: str, resume_step: int | None) -> None:
        self._resume_step = resume_step
        self._last_row: dict[str, Any] = {}
        super().__init__(log_dir)

    def log_metrics(self, metrics_dict: dict[str, Any], step: int | None = None) -> None:
        row = {**metrics_dict, "step": step}
        if row != self._last_row:
            self._last_row = row
            super().log_metrics(metrics_dict, step)

    def _check_log_dir_exists(self) -> None:
        if self._resume_step is None or not os.path.isfile(self.metrics_file_path):
            return
        with open(self.metrics_file_path, newline="") as file:
            reader = csv.DictReader(file)
            self.metrics_keys = list(reader.fieldnames or [])
            rows = [row for row in reader if int(row["step"]) < self._resume_step]
        temporary = f"{self.metrics_file_path}.part"
        with open(temporary, "w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=self.metrics_keys)
            writer.writeheader()
            writer.writerows(rows)
        os.replace(temporary, self.metrics_file_path)


class RunTensorBoardLogger(TensorBoardLogger):
    """Write TensorBoard events into the run folder.

    Args:
        save_dir: the run folder; the launcher fills it in.
        resume_step: hide the events of a killed run from this step on.
    """

    def __init__(self, save_dir: str | None = None, resume_step: int | None = None) -> None:
        super().__init__(save_dir or ".", name="", version="", default_hp_metric=False, purge_step=resume_step)

    def save(self) -> None:
        super().save()
        if self._experiment is not None:
            self._experiment.flush()
