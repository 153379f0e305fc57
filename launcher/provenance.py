"""What a result needs to be checked by others: versions and the revision of the code."""

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version

from launcher.paths import PROJECT

PACKAGES = ("leyden", "torch", "lightning", "torchmetrics", "numpy")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that shape a result."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def git_revision() -> str | None:
    """Return the commit of the code, with ``+changes`` if tracked files other than results differ; None outside a repository."""

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", str(PROJECT), *words], capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + (
            "+changes" if git("status", "--porcelain", "-uno", "--", ":/", ":!/docs/results") else ""
        )
    except (OSError, subprocess.CalledProcessError):
        return None
