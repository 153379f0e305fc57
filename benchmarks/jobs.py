"""One training run as a subprocess of ``train.py``: where it is kept, whether it is finished, how it is started and read."""

import csv
import hashlib
import json
import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from benchmarks.experiments import REPOSITORY, Value

STDERR_LINES = 15


@dataclass(frozen=True)
class Job:
    """A run of ``train.py``.

    Its name ends in a digest of its arguments and configs, so that a run folder holds the result of exactly this command: a
    changed setting is another run, an unchanged one is found again.

    Attributes:
        experiment, variant, seed: what it is a run of.
        label: what a person calls it, ``method/experiment/variant/repetition``.
        config: config file, relative to the repository.
        options: command-line options of ``train.py`` and their values.
        root: folder of all runs.
        command: how ``train.py`` is called.
        setting: those of the options that tuning tries or has chosen.
        after: by option, the run that must have finished before; the option's value is its run folder.
    """

    experiment: str
    variant: str
    seed: int
    label: str
    config: str
    options: Mapping[str, Value]
    root: Path
    command: tuple[str, ...]
    setting: Mapping[str, Value] = field(default_factory=dict)
    after: Mapping[str, "Job"] = field(default_factory=dict)

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        """Arguments that say what is computed, beside those that name other runs."""
        return ("--config", self.config, *_words(self.options))

    @cached_property
    def name(self) -> str:
        """Name of the run: label and digest."""
        configs = [REPOSITORY / "configs" / "defaults.yaml", REPOSITORY / self.config]
        contents = [yaml.safe_load(path.read_text()) for path in configs if path.exists()]
        arguments = (*self.arguments, *_words({option: job.name for option, job in self.after.items()}))
        digest = hashlib.sha256(json.dumps([arguments, contents], default=str).encode()).hexdigest()
        return f"{self.label}-{digest[:8]}"

    @property
    def folder(self) -> Path:
        """Folder that holds the attempts at this run, numbered by the launcher."""
        return REPOSITORY / self.root / self.name

    def attempts(self) -> list[Path]:
        """Return the run folders of the launcher, oldest first."""
        found = [path for path in self.folder.glob("*") if path.name.isdigit()]
        return sorted(found, key=lambda path: int(path.name))

    def finished(self) -> Path | None:
        """Return the run folder whose summary says that it is finished."""
        for attempt in reversed(self.attempts()):
            if _summary(attempt).get("status") == "finished":
                return attempt
        return None

    def interrupted(self) -> bool:
        """Whether the newest attempt has a checkpoint to go on from."""
        attempts = self.attempts()
        return bool(attempts) and self.finished() is None and any(attempts[-1].glob("checkpoints/*.ckpt"))

    def awaited(self) -> list["Job"]:
        """Return the runs that must finish before this one can start."""
        return [job for job in self.after.values() if job.finished() is None]

    def command_line(self) -> list[str]:
        """Return the whole command, with ``--resume`` for an interrupted run.

        Raises:
            ValueError: if a run that this one builds on is not finished.
        """
        folders = {option: str(job.root / job.name / job._finished().name) for option, job in self.after.items()}
        where = ("--run.root", str(self.root), "--run.name", self.name)
        return [*self.command, *self.arguments, *_words(folders), *where, *(["--resume"] if self.interrupted() else [])]

    def start(self, environment: Mapping[str, str] | None = None) -> "subprocess.Popen[bytes]":
        """Start the run in the repository; its output goes to ``stdout.log`` and ``stderr.log`` in its folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "stdout.log", "ab") as out, open(self.folder / "stderr.log", "wb") as err:
            return subprocess.Popen(
                self.command_line(), cwd=REPOSITORY, stdout=out, stderr=err, env={**os.environ, **(environment or {})}
            )

    def run(self) -> "Outcome":
        """Run to the end."""
        begin = time.monotonic()
        return self.outcome(self.start().wait(), time.monotonic() - begin)

    def outcome(self, status: int, seconds: float) -> "Outcome":
        """Judge a run that ended with this exit status."""
        if status == 0 and self.finished():
            return Outcome(self, seconds)
        log = self.folder / "stderr.log"
        lines = log.read_text(errors="replace").splitlines()[-STDERR_LINES:] if log.exists() else []
        reason = f"exit status {status}" if status else "it ended without a summary that says finished"
        return Outcome(self, seconds, "\n".join([reason, *lines]))

    def summary(self) -> dict[str, Any]:
        """Return the summary of the finished run."""
        return _summary(self._finished())

    def logged(self, metric: str) -> list[float]:
        """Return every value of a metric that the finished run wrote to ``metrics.csv``.

        Raises:
            ValueError: if it wrote none.
        """
        rows = self._rows()
        values = [float(row[metric]) for row in rows if row.get(metric)]
        if not values:
            raise ValueError(
                f"{metric} is not in metrics.csv of run {self.name}; it has: {', '.join(rows[0]) if rows else 'nothing'}"
            )
        return values

    def series(self, metric: str) -> dict[int, float]:
        """Return the values of a metric in ``metrics.csv`` of the finished run by their step; empty if it did not log any."""
        return {int(float(row["step"])): float(row[metric]) for row in self._rows() if row.get(metric)}

    def _finished(self) -> Path:
        """Return the finished run folder; having none is an error."""
        attempt = self.finished()
        if attempt is None:
            raise ValueError(f"run {self.name} is not finished")
        return attempt

    def _rows(self) -> list[dict[str, str]]:
        path = (self.finished() or self.folder) / "metrics.csv"
        return list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []


@dataclass(frozen=True)
class Outcome:
    """How a run ended: its time, and what went wrong if it failed."""

    job: Job
    seconds: float
    failure: str = ""


def _words(options: Mapping[str, Value]) -> list[str]:
    """Write options for the command line."""
    return [word for option, value in options.items() for word in (f"--{option}", _written(value))]


def _written(value: Value) -> str:
    """Write a value as the command line of the launcher expects it."""
    return value if isinstance(value, str) else json.dumps(value)


def _summary(attempt: Path) -> dict[str, Any]:
    """Read a summary; a missing or torn one is empty."""
    try:
        return json.loads((attempt / "summary.json").read_text())
    except (OSError, json.JSONDecodeError):
        return {}
