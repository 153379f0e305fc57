"""Pictures of number puzzles: what was given, what was answered, what is wrong."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RIGHT, WRONG = "#0072B2", "#D55E00"


def board_strip(
    puzzle: Tensor, solution: Tensor, answers: Tensor, titles: Sequence[str], box_shape: tuple[int, int] | None = None
) -> "Figure":
    """Draw the puzzle and then its answers side by side; wrong cells are shaded.

    Args:
        puzzle: given digits, 0 for a blank, ``[side, side]``.
        solution: right digits, ``[side, side]``.
        answers: digits of A answers, ``[A, side, side]``.
        titles: one title an answer.
        box_shape: rows and columns of one box, for its thick border.
    """
    from matplotlib.figure import Figure

    width = 0.25 * len(puzzle) + 0.6
    figure = Figure(figsize=(width * (len(answers) + 1), width + 0.3), layout="constrained")
    panels = figure.subplots(1, len(answers) + 1, squeeze=False)[0]
    _draw_board(panels[0], puzzle, puzzle, puzzle, box_shape)
    panels[0].set_title("puzzle")
    for axes, answer, title in zip(panels[1:], answers, titles, strict=True):
        _draw_board(axes, answer, puzzle, solution, box_shape)
        axes.set_title(f"{title}: {int((answer != solution).sum())} wrong")
    return figure


def _draw_board(axes: "Axes", board: Tensor, puzzle: Tensor, solution: Tensor, box_shape: tuple[int, int] | None) -> None:
    """Draw one board: givens black, right answers blue, wrong ones orange and shaded."""
    from matplotlib.patches import Rectangle

    side = len(board)
    for row in range(side):
        for column in range(side):
            digit, given = int(board[row, column]), bool(puzzle[row, column])
            wrong = digit != int(solution[row, column])
            if wrong:
                axes.add_patch(Rectangle((column, row), 1, 1, color=WRONG, alpha=0.25, linewidth=0))
            colour = WRONG if wrong else "black" if given else RIGHT
            weight = "bold" if given else "normal"
            text = str(digit) if digit else ""
            axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", color=colour, fontweight=weight)
    box_rows, box_columns = box_shape or (side, side)
    for line in range(side + 1):
        axes.axhline(line, color="black", linewidth=1.4 if line % box_rows == 0 else 0.4)
        axes.axvline(line, color="black", linewidth=1.4 if line % box_columns == 0 else 0.4)
    axes.set(xlim=(-0.05, side + 0.05), ylim=(side + 0.05, -0.05), aspect="equal")
    axes.set_axis_off()
