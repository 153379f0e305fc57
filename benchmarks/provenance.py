"""Where a result came from: revision, versions and machine, found without importing torch."""

import os
import platform
from pathlib import Path
from typing import Any

from launcher.provenance import git_revision, versions


def provenance(command: str) -> dict[str, Any]:
    """Return ``{command, git, versions, machine}``."""
    return {"command": command, "git": git_revision(), "versions": versions(), "machine": machine()}


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
