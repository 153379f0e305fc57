"""A picture of one Sudoku board."""

from typing import TYPE_CHECKING

import numpy as np

from datamodules.sudoku_rules import SudokuRules

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GIVEN, RIGHT, WRONG, SOLUTION = "black", "tab:green", "tab:red", "tab:gray"


def draw_board(
    rules: SudokuRules, puzzle: np.ndarray, solution: np.ndarray | None = None, prediction: np.ndarray | None = None
) -> "Figure":
    """Draw the givens in black and fill the blanks.

    Args:
        rules: the board.
        puzzle: digits with 0 for blanks, shape ``[side, side]``.
        solution: fills the blanks in grey if there is no prediction.
        prediction: fills the blanks, green where it agrees with ``solution`` and red where not (grey without a solution).
    """
    from matplotlib.figure import Figure

    side = rules.side
    figure = Figure(figsize=(0.45 * side + 0.3, 0.45 * side + 0.3), layout="constrained")
    axes = figure.add_subplot(xlim=(0, side), ylim=(side, 0), aspect="equal")
    axes.set_axis_off()
    for line in range(side + 1):
        axes.plot([line, line], [0, side], color="black", linewidth=2.0 if line % rules.box_cols == 0 else 0.5, clip_on=False)
        axes.plot([0, side], [line, line], color="black", linewidth=2.0 if line % rules.box_rows == 0 else 0.5, clip_on=False)
    filling = prediction if prediction is not None else solution
    for row, column in np.ndindex(side, side):
        digit, color = puzzle[row, column], GIVEN
        if digit == 0 and filling is not None:
            digit, color = filling[row, column], SOLUTION
            if prediction is not None and solution is not None:
                color = RIGHT if digit == solution[row, column] else WRONG
        if digit:
            weight = "bold" if color == GIVEN else "normal"
            axes.text(column + 0.5, row + 0.5, str(int(digit)), color=color, weight=weight, ha="center", va="center", fontsize=12)
    return figure
