"""The folder of one run: ``<root>/<method>/<task>/<n>`` with all that the run leaves behind."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.errors import UserError

CHECKPOINTS = "checkpoints"
CONFIG = "config.yaml"
SUMMARY = "summary.json"
RUN = "run.json"


@dataclass(frozen=True)
class RunFolder:
    """A run folder; ``run.json`` holds what identifies the run, ``summary.json`` appears when it has finished.

    Attributes:
        path: the folder.
        name: ``method/task``.
    """

    path: Path
    name: str

    @classmethod
    def create(cls, root: Path, name: str, kind: str) -> RunFolder:
        """Claim the next free number under ``root/name``.

        Args:
            root: folder of all runs.
            name: ``method/task``.
            kind: subcommand that fills the folder; only a ``fit`` can be resumed.

        Raises:
            UserError: if the folder cannot be written.
        """
        parent = root / name
        try:
            parent.mkdir(parents=True, exist_ok=True)
            number = max((int(folder.name) for folder in _numbered(parent)), default=-1) + 1
            while True:
                try:
                    (parent / str(number)).mkdir()
                    break
                except FileExistsError:
                    number += 1
            folder = cls(parent / str(number), name)
            write_json(folder.path / RUN, {"id": secrets.token_hex(4), "kind": kind, "slurm_job": os.environ.get("SLURM_JOB_ID")})
        except OSError as error:
            raise UserError(
                f"run.root: cannot write a run folder under {parent} ({error.strerror}); choose another with --run.root"
            ) from error
        return folder

    @property
    def number(self) -> int:
        return int(self.path.name)

    @property
    def identity(self) -> dict[str, Any]:
        """Return what ``run.json`` says: ``id``, ``kind`` and ``slurm_job``."""
        return json.loads((self.path / RUN).read_text())

    @property
    def finished(self) -> bool:
        return (self.path / SUMMARY).exists()

    @property
    def config(self) -> Path:
        return self.path / CONFIG

    def summary(self) -> dict[str, Any]:
        """Return the content of ``summary.json``."""
        return json.loads((self.path / SUMMARY).read_text())

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Mark the run as finished."""
        write_json(self.path / SUMMARY, summary)

    def checkpoints(self) -> list[Path]:
        """Return the checkpoints that a resume may start from, best choice first."""
        folder = self.path / CHECKPOINTS
        return [path for name in ("last.ckpt", "previous.ckpt") if (path := folder / name).exists()]

    def drop_requeue_checkpoints(self) -> None:
        """Remove what Lightning saves before it requeues a SLURM job: ``last.ckpt`` is the same or newer."""
        for path in self.path.glob("hpc_ckpt_*.ckpt"):
            path.unlink()

    def discard(self) -> None:
        """Remove a folder in which no training was done, and the empty folders above it."""
        if not self.checkpoints():
            shutil.rmtree(self.path, ignore_errors=True)
            for parent in self.path.parents[: len(Path(self.name).parts) + 1]:
                try:
                    parent.rmdir()
                except OSError:
                    break


def runs(root: Path, name: str) -> Iterator[RunFolder]:
    """Yield the run folders of an experiment, newest first."""
    for path in sorted(_numbered(root / name), key=lambda folder: int(folder.name), reverse=True):
        if (path / RUN).exists():
            yield RunFolder(path, name)


def unfinished(root: Path, name: str, slurm_job: str | None = None) -> RunFolder | None:
    """Return the newest training run without a summary, if there is one.

    Args:
        root: folder of all runs.
        name: ``method/task``.
        slurm_job: only a run of this SLURM job.
    """
    for folder in runs(root, name):
        if folder.finished or not folder.config.exists():
            continue
        identity = folder.identity
        if identity["kind"] == "fit" and slurm_job in (None, identity["slurm_job"]):
            return folder
    return None


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a file under a temporary name and rename it, so that no reader ever sees half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(content, indent=2) + "\n")
    temporary.replace(path)


def _numbered(parent: Path) -> list[Path]:
    return [path for path in parent.glob("*") if path.name.isdigit() and path.is_dir()]
