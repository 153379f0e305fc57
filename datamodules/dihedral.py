"""Turns and mirrors of a rectangular board."""

import numpy as np


def dihedral_maps(height: int, width: int, swap_axes: bool = True) -> np.ndarray:
    """List the turns and mirrors that keep the shape: 8 of a square, 4 of another board.

    Args:
        height, width: the board.
        swap_axes: include, on a square, the 4 maps that swap rows with columns.

    Returns:
        Source cell of every target cell, shape ``[8 or 4, height * width]``; the first map is the identity.
    """
    board = np.arange(height * width).reshape(height, width)
    upright = [board, board[::-1], board[:, ::-1], board[::-1, ::-1]]
    lying = [image.T for image in upright] if height == width and swap_axes else []
    return np.stack([image.ravel() for image in upright + lying])
