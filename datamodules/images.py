"""Small grey images with labels: MNIST and Fashion-MNIST from files, 8 x 8 digits from scikit-learn."""

import gzip
import struct
import tempfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np

from datamodules.fetch_formats import read_idx
from datamodules.roots import find_data, require_data

Splits = dict[str, tuple[np.ndarray, np.ndarray]]

CLASSES = 10
DIGITS_TRAIN = 1_297
UNREADABLE = (OSError, EOFError, ValueError, KeyError, IndexError, struct.error, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True)
class ImageFiles:
    """Where a set of images lies in a data folder.

    Attributes:
        archive: ``.npz`` with the arrays ``train_images``, ``train_labels``, ``test_images``, ``test_labels``.
        torchvision: name of torchvision's data set, whose IDX files lie in the folder ``<name>/raw``.
        fetch_name: what ``python -m datamodules.fetch`` calls it.
    """

    archive: str
    torchvision: str
    fetch_name: str


FILES = {
    "mnist": ImageFiles("images/mnist.npz", "MNIST", "mnist"),
    "fashion": ImageFiles("images/fashion_mnist.npz", "FashionMNIST", "fashion"),
}
SIDES = {"mnist": 28, "fashion": 28, "digits8": 8}


def prepare_images(variant: str, root: str | Path | None = None) -> None:
    """Make sure that :func:`load_images` finds the images, downloading them with torchvision as a last resort.

    Raises:
        FileNotFoundError: if they are nowhere and the download fails; names the remedies.
        ImportError: if ``digits8`` is asked for without scikit-learn.
    """
    if variant == "digits8":
        _digits()
    else:
        _find(variant, root, download=True)


def load_images(variant: str, root: str | Path | None = None) -> Splits:
    """Read the official training and test set.

    ======= =================================================================================================
    variant what is read
    ======= =================================================================================================
    mnist   ``images/mnist.npz`` in the data folders, else torchvision's ``MNIST/raw/*-ubyte`` or ``*-ubyte.gz``
    fashion ``images/fashion_mnist.npz``, else ``FashionMNIST/raw``
    digits8 scikit-learn's 1 797 digits in one fixed random order, 1 297 for training and 500 for the test; their
            17 grey levels 0..16 become 0..255, rounded, so that a division by 255 suits every variant
    ======= =================================================================================================

    Args:
        variant: ``mnist``, ``fashion`` or ``digits8``.
        root: folder that is searched first.

    Returns:
        ``train`` and ``test``, each images uint8 ``[n, side, side]`` and labels int64 ``[n]`` from 0 to 9.

    Raises:
        FileNotFoundError: if the images are nowhere; nothing is downloaded.
        ImportError: if ``digits8`` is asked for without scikit-learn.
        ValueError: if the variant is unknown, or a file is damaged or missing beside the others.
    """
    if variant not in SIDES:
        raise ValueError(f"variant={variant!r} is unknown, use {', '.join(SIDES)}")
    if variant == "digits8":
        return _digits()
    found = _find(variant, root)
    splits = _read_raw(found) if found.is_dir() else _read_archive(found)
    for split, (images, labels) in splits.items():
        _check(images, labels, SIDES[variant], f"{split} set of {found}")
    return {split: (images, labels.astype(np.int64)) for split, (images, labels) in splits.items()}


def cut_splits(
    splits: Splits, variant: str, train_size: int | None, val_size: int, test_size: int | None, generator_seed: int
) -> Splits:
    """Cut the official sets into ``train``, ``val`` and ``test``.

    The training set is the first ``train_size`` images of the official training set in a random order that ``generator_seed``
    fixes, the validation set the last ``val_size`` of it, the test set the first ``test_size`` of the official test set.

    Args:
        splits: what :func:`load_images` read.
        variant: its name, for messages.
        train_size: number of training images; None: all but the validation images.
        val_size: number of validation images.
        test_size: number of test images; None: all.
        generator_seed: seed of the split.

    Raises:
        ValueError: if there are too few images.
    """
    images, labels = splits["train"]
    test_images, test_labels = splits["test"]
    wanted = "at least one training image" if train_size is None else f"train_size={train_size}"
    train_size = len(images) - val_size if train_size is None else train_size
    test_size = len(test_images) if test_size is None else test_size
    if train_size < 1 or train_size + val_size > len(images):
        raise ValueError(
            f"{variant} has {len(images)} training images, too few for {wanted} and val_size={val_size}: "
            "use a smaller val_size or train_size"
        )
    if test_size > len(test_images):
        raise ValueError(f"{variant} has {len(test_images)} test images, too few for test_size={test_size}: use at most those")
    order = np.random.default_rng((generator_seed, crc32(b"split"))).permutation(len(images))
    train, val = order[:train_size], order[len(order) - val_size :]
    return {
        "train": (images[train], labels[train]),
        "val": (images[val], labels[val]),
        "test": (test_images[:test_size], test_labels[:test_size]),
    }


def _find(variant: str, root: str | Path | None, download: bool = False) -> Path:
    """Return the archive, or the folder of IDX files."""
    files = FILES[variant]
    raw = f"{files.torchvision}/raw"
    found = find_data(files.archive, root) or find_data(raw, root)
    if found:
        return found
    try:
        return require_data(
            files.archive, root, (lambda target: _download(files.torchvision, target)) if download else None, files.fetch_name
        )
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{error}, or with torchvision on a machine with network access (its folder {raw} serves as well)"
        ) from error


def _download(name: str, target: Path) -> None:
    """Let torchvision download the data set and keep its arrays in ``target``."""
    from torchvision import datasets

    with tempfile.TemporaryDirectory() as folder:
        try:
            getattr(datasets, name)(folder, download=True)
        except Exception as error:
            reason = str(error).partition("\n")[0].rstrip(":")  # one line for each mirror follows
            raise ConnectionError(f"torchvision: {reason}") from error
        splits = _read_raw(Path(folder) / name / "raw")
    np.savez_compressed(
        target,
        train_images=splits["train"][0],
        train_labels=splits["train"][1],
        test_images=splits["test"][0],
        test_labels=splits["test"][1],
    )


def _read_archive(file: Path) -> Splits:
    try:
        with file.open("rb") as stream:
            archive = np.load(stream)
            return {split: (archive[f"{split}_images"], archive[f"{split}_labels"]) for split in ("train", "test")}
    except UNREADABLE as error:
        raise _damaged(file, error) from error


def _read_raw(folder: Path) -> Splits:
    return {
        split: (_read_file(folder / f"{stem}-images-idx3-ubyte"), _read_file(folder / f"{stem}-labels-idx1-ubyte"))
        for split, stem in (("train", "train"), ("test", "t10k"))
    }


def _read_file(file: Path) -> np.ndarray:
    """Read an IDX file, or the same name with ``.gz``."""
    zipped = file.with_name(f"{file.name}.gz")
    if not file.exists() and not zipped.exists():
        raise ValueError(f"{file} is missing, also as {zipped.name}: add it, or remove its folder to have the images found anew")
    try:
        return read_idx(file.read_bytes() if file.exists() else gzip.decompress(zipped.read_bytes()))
    except UNREADABLE as error:
        raise _damaged(file if file.exists() else zipped, error) from error


def _damaged(file: Path, error: Exception) -> ValueError:
    return ValueError(f"{file} cannot be read ({type(error).__name__}: {error}): replace or remove it")


def _check(images: np.ndarray, labels: np.ndarray, side: int, what: str) -> None:
    if images.dtype != np.uint8 or images.ndim != 3 or images.shape[1:] != (side, side):
        raise ValueError(
            f"the {what} has {images.dtype} images of shape {images.shape}, "
            f"expected uint8 [n, {side}, {side}]: replace or remove it"
        )
    if labels.shape != images.shape[:1] or labels.dtype.kind not in "iu" or len(labels) == 0:
        raise ValueError(
            f"the {what} has {labels.dtype} labels of shape {labels.shape} for {len(images)} images, "
            "expected one whole number each: replace or remove it"
        )
    if labels.min() < 0 or labels.max() >= CLASSES:
        raise ValueError(f"the {what} has labels from {labels.min()} to {labels.max()}, expected 0 to 9: replace or remove it")


def _digits() -> Splits:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError("variant='digits8' needs scikit-learn: pip install 'leyden[data]'") from error
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = np.rint(digits.images[order] * 255 / 16).astype(np.uint8)
    labels = digits.target[order].astype(np.int64)
    return {
        "train": (images[:DIGITS_TRAIN], labels[:DIGITS_TRAIN]),
        "test": (images[DIGITS_TRAIN:], labels[DIGITS_TRAIN:]),
    }
