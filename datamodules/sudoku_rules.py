"""The geometry of a Sudoku board and the rules that a filled board obeys."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class SudokuRules:
    """A board of ``side x side`` cells whose boxes have ``box_rows`` rows and ``box_cols`` columns.

    ``side = box_rows * box_cols``; the board has ``box_cols`` bands of ``box_rows`` rows and ``box_rows`` stacks of ``box_cols``
    columns. Digits are 1 to ``side``, 0 is a blank, cells are numbered row-major.

    Raises:
        ValueError: if a box is empty or the side is outside 4 to 25.
    """

    box_rows: int
    box_cols: int

    def __post_init__(self) -> None:
        if self.box_rows < 1 or self.box_cols < 1 or not 4 <= self.side <= 25:
            raise ValueError(
                f"box_rows={self.box_rows}, box_cols={self.box_cols}: a box must hold 4 to 25 cells, such as 2 x 2, 2 x 3 or 3 x 3"
            )

    @property
    def side(self) -> int:
        """Number of rows, columns and boxes."""
        return self.box_rows * self.box_cols

    @property
    def cells(self) -> int:
        """Number of cells."""
        return self.side**2

    @cached_property
    def units(self) -> np.ndarray:
        """Cell numbers of every row, column and box, in this order, shape ``[3 * side, side]``."""
        board = np.arange(self.cells).reshape(self.side, self.side)
        boxes = board.reshape(self.box_cols, self.box_rows, self.box_rows, self.box_cols).swapaxes(1, 2)
        return np.concatenate([board, board.T, boxes.reshape(self.side, self.side)])

    def clashes(self, boards: np.ndarray) -> np.ndarray:
        """Tell for each board whether a digit stands twice in a row, column or box; blanks never clash.

        A digit ``k`` is the bit ``2^k``: the bits of a unit add up to their union exactly when none is repeated.

        Args:
            boards: digits 0 to ``side``, shape ``[boards, side, side]``.

        Returns:
            Boolean array, shape ``[boards]``.
        """
        flat = boards.reshape(len(boards), self.cells)
        bits = np.where(flat > 0, np.left_shift(1, flat, dtype=np.int64), 0)
        found = np.zeros(len(boards), dtype=bool)
        for unit in self.units:
            unit_bits = bits[:, unit]
            found |= unit_bits.sum(axis=1) != np.bitwise_or.reduce(unit_bits, axis=1)
        return found

    def is_solved(self, boards: np.ndarray) -> np.ndarray:
        """Tell for each board ``[boards, side, side]`` whether it is full and without a clash."""
        return (boards > 0).all(axis=(1, 2)) & (boards <= self.side).all(axis=(1, 2)) & ~self.clashes(boards)
