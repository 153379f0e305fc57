"""Corruptions of grey images: a frame of zeros, Gaussian noise, blocks that go dark.

What is random depends on the seed and on the number of the image alone, so that every model on every number of processes is
tested on the same pixels.
"""

from collections.abc import Callable, Sequence

import numpy as np

CHUNK = 64  # images whose random numbers come from one generator


def pad_with_zeros(images_nHW: np.ndarray, pixels: int) -> np.ndarray:
    """Put a frame of ``pixels`` zeros around each image, shape ``[n, H + 2 pixels, W + 2 pixels]``."""
    return np.pad(images_nHW, ((0, 0), (pixels, pixels), (pixels, pixels)))


def add_noise(images_nHW: np.ndarray, sigma: float, seed: Sequence[int], indices: np.ndarray) -> np.ndarray:
    """Add N(0, sigma²) to each pixel and clip to [0, 1].

    Args:
        images_nHW: images in [0, 1], float32.
        sigma: standard deviation.
        seed: seed of the noise.
        indices: number of each image in its set, shape ``[n]``.
    """
    shape = images_nHW.shape[1:]
    noise = _rows(indices, seed, lambda random: random.standard_normal((CHUNK, *shape), dtype=np.float32))
    return np.clip(images_nHW + np.float32(sigma) * noise, 0.0, 1.0)


def block_grid(height: int, width: int, patch: int) -> tuple[int, int]:
    """Rows and columns of blocks whose centres are ``range(patch // 2, dim, patch)``; the last ones may stick out of the image."""
    return len(range(patch // 2, height, patch)), len(range(patch // 2, width, patch))


def choose_blocks(blocks: int, chosen: int, seed: Sequence[int], indices: np.ndarray) -> np.ndarray:
    """Choose exactly ``chosen`` of ``blocks`` blocks for each image, every set of them being equally likely.

    Args:
        blocks: number of blocks of an image.
        chosen: how many of them to choose.
        seed: seed of the choice.
        indices: number of each image in its set, shape ``[n]``.

    Returns:
        True where a block is chosen, bool ``[n, blocks]``, blocks row by row.
    """
    scores = _rows(indices, seed, lambda random: random.random((CHUNK, blocks)))
    mask = np.zeros(scores.shape, dtype=bool)
    np.put_along_axis(mask, scores.argsort(axis=1)[:, :chosen], True, axis=1)
    return mask


def blank_blocks(images_nHW: np.ndarray, dropped_nP: np.ndarray, patch: int) -> np.ndarray:
    """Set all pixels of the dropped blocks to 0; pixels that lie in no block stay.

    Args:
        images_nHW: images.
        dropped_nP: True for blocks to blank, bool ``[n, blocks]``, laid out by :func:`block_grid`.
        patch: side of a block.
    """
    height, width = images_nHW.shape[1:]
    rows, columns = block_grid(height, width, patch)
    pixels = dropped_nP.reshape(-1, rows, columns).repeat(patch, axis=1).repeat(patch, axis=2)[:, :height, :width]
    blanked = images_nHW.copy()
    blanked[:, : pixels.shape[1], : pixels.shape[2]][pixels] = 0
    return blanked


def _rows(indices: np.ndarray, seed: Sequence[int], draw: Callable[[np.random.Generator], np.ndarray]) -> np.ndarray:
    """Return row ``index % CHUNK`` of what ``draw`` makes for chunk ``index // CHUNK``, for each index."""
    chunks, positions = np.unique(indices // CHUNK, return_inverse=True)
    drawn = np.stack([draw(np.random.default_rng((*seed, chunk))) for chunk in chunks])
    return drawn[positions, indices % CHUNK]
