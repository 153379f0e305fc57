"""A picture of one maze."""

from typing import TYPE_CHECKING, Any

import numpy as np

from datamodules.maze_generator import GOAL, OPEN, PATH, START, WALL

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {WALL: "#404040", OPEN: "#FFFFFF", START: "#009E73", GOAL: "#CC79A7", PATH: "#0072B2"}
WRONG = "#D55E00"


def draw_maze(maze: np.ndarray, solution: np.ndarray | None = None, prediction: np.ndarray | None = None) -> "Figure":
    """Draw walls dark, start and goal with their letters, and the path blue.

    A prediction beside a solution is blue where its path is right, orange and crossed where it is wrong; path pixels that it lacks
    are hatched. The hatches tell the three apart without colour too.

    Args:
        maze: tokens of the maze, shape ``[height, width]``.
        solution: tokens with the path, drawn if there is no prediction.
        prediction: tokens or any map whose path pixels are 5.
    """
    from matplotlib.colors import to_rgb
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch, Rectangle

    height, width = maze.shape
    shown = prediction if prediction is not None else solution
    path = shown == PATH if shown is not None else np.zeros(maze.shape, dtype=bool)
    truth = solution == PATH if solution is not None else path
    marks: dict[str, tuple[np.ndarray, dict[str, Any]]] = {
        "wrong": (path & ~truth, {"facecolor": WRONG, "edgecolor": "white", "hatch": "xxxx"}),
        "missing": (truth & ~path, {"facecolor": "white", "edgecolor": COLOURS[PATH], "hatch": "////"}),
    }
    pixels = np.zeros((height, width, 3))
    for token, colour in COLOURS.items():
        pixels[(path & truth) if token == PATH else maze == token] = to_rgb(colour)

    side = max(0.11, min(0.3, 9 / max(height, width)))
    figure = Figure(figsize=(max(side * width, 3.0) + 0.3, side * height + 0.7), layout="constrained")
    axes = figure.add_subplot(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5), aspect="equal")
    axes.set_axis_off()
    axes.imshow(pixels, interpolation="nearest")
    legend = [Patch(facecolor=COLOURS[PATH], label="path")] if (path & truth).any() else []
    for name, (where, look) in marks.items():
        for row, column in np.argwhere(where):
            axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, label=name, linewidth=0.5, **look))
        if where.any():
            legend.append(Patch(label=f"{name}: {where.sum()}", **look))
    for token, letter in ((START, "S"), (GOAL, "G")):
        for row, column in np.argwhere(maze == token):
            axes.text(
                column, row, letter, ha="center", va="center", color="black", fontsize=9, fontweight="bold",
                bbox={"boxstyle": "circle,pad=0.15", "facecolor": COLOURS[token], "edgecolor": "black", "linewidth": 0.8},
            )  # fmt: skip
    if legend:
        figure.legend(handles=legend, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return figure
