"""Maps that turn a valid Sudoku into another: digit names, turns and mirrors, and shuffles of rows and columns."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from datamodules.dihedral import dihedral_maps
from datamodules.sudoku_rules import SudokuRules


def box_maps(rules: SudokuRules) -> np.ndarray:
    """List the turns and mirrors that map boxes to boxes, ``[8 or 4, cells]``; boxes that are not square allow 4."""
    return dihedral_maps(rules.side, rules.side, swap_axes=rules.box_rows == rules.box_cols)


@dataclass(frozen=True)
class SudokuMaps:
    """One validity-preserving map per board.

    Attributes:
        sources: cell that each target cell is read from, shape ``[boards, cells]``.
        digits: new name of each digit, ``digits[:, 0] = 0``, shape ``[boards, side + 1]``.
    """

    sources: np.ndarray
    digits: np.ndarray

    def __getitem__(self, rows: slice) -> "SudokuMaps":
        return SudokuMaps(self.sources[rows], self.digits[rows])

    def __call__(self, boards: np.ndarray) -> np.ndarray:
        """Map boards of shape ``[boards, any, cells]``; all boards of a row are mapped alike."""
        moved = np.take_along_axis(boards, self.sources[:, None, :], axis=2)
        return self.digits[np.arange(len(boards))[:, None, None], moved]


class SudokuAugmentation:
    """Draws random maps of a kind.

    ``none`` draws the identity, ``digits`` renames the digits, ``dihedral`` turns and mirrors, ``full`` draws from the whole group:
    renamed digits, permuted bands and stacks, permuted rows and columns inside them and, for square boxes, a transpose; for the
    9 x 9 board it has :math:`9! \\cdot 2 \\cdot 6^8` members. ``dihedral8`` draws nothing: each board comes ``images`` times in
    a row, once in every dihedral image.

    Args:
        rules: the board.
        kind: one of ``kinds``.

    Attributes:
        images: how many images of a board follow each other: 8 (4 where boxes are not square) for ``dihedral8``, else 1.
    """

    kinds = ("none", "digits", "dihedral", "dihedral8", "full")

    def __init__(self, rules: SudokuRules, kind: str) -> None:
        if kind not in self.kinds:
            raise ValueError(f"augment={kind!r} is unknown, use one of {', '.join(self.kinds)}")
        self.rules, self.kind = rules, kind
        self._dihedral = box_maps(rules)
        self.images = len(self._dihedral) if kind == "dihedral8" else 1

    def draw(self, generator: np.random.Generator, count: int) -> SudokuMaps:
        """Draw ``count`` independent maps (for ``dihedral8`` a multiple of ``images``)."""
        sources = np.broadcast_to(np.arange(self.rules.cells), (count, self.rules.cells))
        digits = np.broadcast_to(np.arange(self.rules.side + 1), (count, self.rules.side + 1))
        if self.kind in ("digits", "full"):
            digits = np.concatenate([digits[:, :1], generator.permuted(digits[:, 1:], axis=1)], axis=1)
        if self.kind == "dihedral":
            sources = self._dihedral[generator.integers(len(self._dihedral), size=count)]
        if self.kind == "dihedral8":
            sources = np.tile(self._dihedral, (count // self.images, 1))
        if self.kind == "full":
            sources = self._shuffled_cells(generator, count)
        return SudokuMaps(sources, digits)

    def _shuffled_cells(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Permute lines of both directions and transpose half of the boards if boxes are square."""
        rules = self.rules
        rows = _shuffled_lines(generator, count, bands=rules.box_cols, lines=rules.box_rows)
        columns = _shuffled_lines(generator, count, bands=rules.box_rows, lines=rules.box_cols)
        cells = rows[:, :, None] * rules.side + columns[:, None, :]
        if rules.box_rows == rules.box_cols:
            transposed = generator.integers(2, size=count) == 1
            cells = np.where(transposed[:, None, None], cells.swapaxes(1, 2), cells)
        return cells.reshape(count, rules.cells)


def canonical_boards(rules: SudokuRules, boards: np.ndarray) -> np.ndarray:
    """Choose one representative of each board's class under digit names and the dihedral maps.

    In each image the digits are renamed 1, 2, … in the order in which they first appear; the lexicographically least image is the
    representative. Two boards have equal representatives exactly when one of these maps turns one into the other.

    Args:
        rules: the board.
        boards: digits 0 to ``side``, shape ``[boards, side, side]``.

    Returns:
        Representatives as uint8, shape ``[boards, cells]``.
    """
    flat = boards.reshape(len(boards), rules.cells)
    first_map, *other_maps = box_maps(rules)
    least = _renamed_by_appearance(rules, flat[:, first_map])
    for sources in other_maps:
        image = _renamed_by_appearance(rules, flat[:, sources])
        position = (image != least).argmax(axis=1)[:, None]
        smaller = np.take_along_axis(image, position, axis=1) < np.take_along_axis(least, position, axis=1)
        least = np.where(smaller, image, least)
    return least


def class_keys(rules: SudokuRules, boards: np.ndarray) -> Sequence[bytes]:
    """Return a hashable name of each board's class, see :func:`canonical_boards`."""
    return [board.tobytes() for board in canonical_boards(rules, boards)]


def _renamed_by_appearance(rules: SudokuRules, flat: np.ndarray) -> np.ndarray:
    """Rename the digits of ``[boards, cells]`` in the order of their first cell."""
    is_digit = flat[:, None, :] == np.arange(1, rules.side + 1)[:, None]
    first_cell = np.where(is_digit.any(axis=2), is_digit.argmax(axis=2), rules.cells)
    names = first_cell.argsort(axis=1, kind="stable").argsort(axis=1) + 1
    names = np.concatenate([np.zeros((len(flat), 1), dtype=names.dtype), names], axis=1)
    return np.take_along_axis(names, flat.astype(np.int64), axis=1).astype(np.uint8)


def _shuffled_lines(generator: np.random.Generator, count: int, bands: int, lines: int) -> np.ndarray:
    """Permute ``bands`` and the ``lines`` inside each: line numbers ``[count, bands * lines]``."""
    outer = generator.permuted(np.broadcast_to(np.arange(bands), (count, bands)), axis=1)
    inner = generator.permuted(np.broadcast_to(np.arange(lines), (count, bands, lines)), axis=2)
    return (outer[:, :, None] * lines + inner).reshape(count, bands * lines)
