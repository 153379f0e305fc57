"""Graphs in ``.npz`` files, and edge lists as text."""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from datamodules.graphs.graph_arrays import GraphArrays, Masks

REQUIRED = ("node_features", "node_labels", "edges")
MASKS = ("train_masks", "val_masks", "test_masks")


def read_npz(file: Path) -> GraphArrays:
    """Read ``node_features``, ``node_labels``, ``edges`` and, if there are any, the masks ``[splits, N]``.

    The number of classes is ``num_classes`` if the file has it, else the number of distinct labels.

    Raises:
        ValueError: if the file is damaged or lacks a key; names both.
    """
    try:
        with np.load(file) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{file} cannot be read ({type(error).__name__}: {error}): replace or remove it") from error
    has_masks = any(key in arrays for key in MASKS)
    if missing := [key for key in (*REQUIRED, *(MASKS if has_masks else ())) if key not in arrays]:
        raise ValueError(f"{file} has no {', '.join(missing)}, only {', '.join(sorted(arrays)) or 'nothing'}")
    for key in ("node_labels", "edges"):
        if arrays[key].dtype.kind not in "iu":
            raise ValueError(f"{key} of {file} is {arrays[key].dtype}: expected whole numbers")
    if has_masks:
        _check_mask_stacks(arrays, file)
    labels = arrays["node_labels"].astype(np.int64)
    return GraphArrays(
        features=arrays["node_features"].astype(np.float32),
        labels=labels,
        edges=arrays["edges"].astype(np.int64),
        classes=int(arrays["num_classes"]) if "num_classes" in arrays else len(np.unique(labels)),
        splits=tuple(Masks(*masks) for masks in zip(*(arrays[key] for key in MASKS), strict=True)) if has_masks else (),
    )


def _check_mask_stacks(arrays: dict[str, np.ndarray], file: Path) -> None:
    shapes = {arrays[key].shape for key in MASKS}
    if len(shapes) > 1 or len(next(iter(shapes))) != 2:
        found = ", ".join(f"{key} {list(arrays[key].shape)}" for key in MASKS)
        raise ValueError(f"{file} has {found}: expected three masks of one shape [splits, nodes]")


def read_edge_list(file: Path) -> np.ndarray:
    """Read a header line and then one edge ``a<tab>b`` a line, from a to b: int64 ``[E, 2]``.

    Raises:
        ValueError: if a line does not hold two whole numbers.
    """
    try:
        return np.loadtxt(file, dtype=np.int64, skiprows=1, ndmin=2, usecols=(0, 1))
    except ValueError as error:
        raise ValueError(f"{file} is not a list of edges ({error}): replace or remove it") from error
