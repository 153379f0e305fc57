"""Where a result came from: revision, versions and machine, found without importing torch."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "lightning", "torchmetrics", "numpy")


def provenance(command: str) -> dict[str, Any]:
    """Return ``{command, git, versions, machine}``."""
    return {"command": command, "git": git_revision(), "versions": versions(), "machine": machine()}


def git_revision() -> str | None:
    """Return the commit of the working tree, with ``+changes`` if files differ from it; None outside a checkout."""
    folder = Path(__file__).parent
    try:
        commit = subprocess.check_output(("git", "rev-parse", "HEAD"), cwd=folder, text=True, stderr=subprocess.DEVNULL)
        changes = subprocess.check_output(("git", "status", "--porcelain", "-uno"), cwd=folder, text=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit.strip()[:12] + ("+changes" if changes.strip() else "")


def versions(packages: tuple[str, ...] = PACKAGES) -> dict[str, str]:
    """Return the versions of Python and of the ``packages`` that are installed."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def machine() -> str:
    """Describe processor, number of cores and GPUs in one line."""
    gpus = [_field(path, "Model") for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))]
    processor = _field(Path("/proc/cpuinfo"), "model name") or platform.processor() or platform.machine()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return ", ".join([f"{processor} ({cores} cores)", *gpus])


def _field(path: Path, name: str) -> str:
    """Return the first ``name: value`` of a file of the kernel, or an empty string."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(name)), "")
