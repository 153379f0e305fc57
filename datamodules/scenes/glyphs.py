"""Shapes and colours of the objects in a scene."""

import numpy as np

from datamodules.scenes.vocabulary import CATEGORIES, COLOURS, OBJECTS

ART = {
    "circle": ".####. ###### ###### ###### ###### .####.",
    "square": "###### ###### ###### ###### ###### ######",
    "triangle": "..##.. ..##.. .####. .####. ###### ######",
    "diamond": "..##.. .####. ###### ###### .####. ..##..",
    "star": "##..## .####. ..##.. ..##.. .####. ##..##",
    "cross": "..##.. ..##.. ###### ###### ..##.. ..##..",
    "ring": ".####. ##..## #....# #....# ##..## .####.",
    "bar": "...... ...... ###### ###### ...... ......",
    "dot": "...... ..##.. .####. .####. ..##.. ......",
    "wedge": "#..... ##.... ###... ####.. #####. ######",
    "arch": ".####. ###### ##..## ##..## ##..## ##..##",
    "hook": "##.... ##.... ##.... ##.... ##..## ######",
}
RGB = {
    "red": (1.0, 0.2, 0.2),
    "green": (0.1, 0.8, 0.1),
    "blue": (0.1, 0.2, 0.9),
    "yellow": (0.9, 0.85, 0.1),
    "purple": (0.6, 0.1, 0.8),
    "cyan": (0.1, 0.8, 0.85),
}
CHECKERS = {"splat": ((0.65, 0.05, 0.15), (0.25, 0.03, 0.06)), "puff": ((0.9, 0.8, 0.85), (0.7, 0.72, 0.8))}
"""The two colours of the squares of 2 pixels with which an extra is filled."""
PALETTE = np.array([RGB[name] for name in COLOURS])


def glyph_masks(side: int) -> np.ndarray:
    """Return the shapes of all objects, bool ``[objects, side, side]``, those of ``ART`` scaled to the next pixel.

    ``splat`` and ``puff`` are the same blob with five lobes, :math:`r \\le 0.78 + 0.22 \\cos 5\\varphi` of the half side.
    """
    nearest = np.arange(side) * 6 // side
    drawn = [np.array([[pixel == "#" for pixel in row] for row in ART[name].split()]) for name in CATEGORIES]
    rows, columns = np.mgrid[:side, :side] - (side - 1) / 2
    radius, angle = np.hypot(rows, columns) / (side / 2), np.arctan2(-rows, columns) - np.pi / 2
    blob = radius <= 0.78 + 0.22 * np.cos(5 * angle)
    return np.stack([mask[np.ix_(nearest, nearest)] for mask in drawn] + [blob] * (len(OBJECTS) - len(CATEGORIES)))
