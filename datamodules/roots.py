"""Where data lie on disk: the user's folder, ``$LEYDEN_DATA``, the cache folder, and last an ordinary download."""

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_folder() -> Path:
    """Return ``$XDG_CACHE_HOME/leyden``, by default ``~/.cache/leyden``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "leyden"


def data_folders(root: str | Path | None = None) -> list[Path]:
    """Return the folders in the order in which they are searched: ``root``, ``$LEYDEN_DATA``, the cache folder."""
    shared = os.environ.get("LEYDEN_DATA")
    return [Path(folder).expanduser() for folder in (root, shared, cache_folder()) if folder]


def writable_folder(root: str | Path | None = None) -> Path:
    """Return where converted, generated and downloaded data are kept: ``root`` if given, else the cache folder."""
    return Path(root).expanduser() if root else cache_folder()


def find_data(name: str, root: str | Path | None = None) -> Path | None:
    """Return the first file or folder ``name`` in :func:`data_folders`, None if it is nowhere."""
    return next((folder / name for folder in data_folders(root) if (folder / name).exists()), None)


def require_data(
    name: str,
    root: str | Path | None = None,
    download: Callable[[Path], None] | None = None,
    fetch_name: str | None = None,
) -> Path:
    """Return the path of ``name``, downloading it as a last resort.

    Args:
        name: file or folder as it is called in a data folder, such as ``images/mnist.npz``.
        root: folder that is searched first.
        download: writes the data to the path it is given; leave it out where nothing may be downloaded, as in ``setup``.
        fetch_name: what ``python -m datamodules.fetch`` calls the data, if it can fetch them.

    Raises:
        FileNotFoundError: if the data are nowhere and the download fails; names the file and the remedies.
    """
    found = find_data(name, root)
    if found:
        return found
    failure: Exception | None = None
    if download:
        target = writable_folder(root) / name
        try:
            with written_whole(target) as temporary:
                download(temporary)
            return target
        except Exception as error:
            failure = error
    fetch = f"`python -m datamodules.fetch --what {fetch_name}`" if fetch_name else "a machine with network access"
    raise FileNotFoundError(
        f"{name} is in none of {', '.join(map(str, data_folders(root)))}"
        + (f" and could not be downloaded ({failure})" if failure else "")
        + f": set the data module's `root` to a folder that holds it, or set LEYDEN_DATA to one, or get it with {fetch}"
    ) from failure


@contextmanager
def written_whole(target: Path) -> Iterator[Path]:
    """Give a temporary path beside ``target`` that takes its place if the block ends well and is removed if not."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{uuid.uuid4().hex}.{target.name}")
    try:
        yield temporary
        temporary.replace(target)
    finally:
        if temporary.is_file():
            temporary.unlink()
