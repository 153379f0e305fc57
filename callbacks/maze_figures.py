"""Pictures of agents in a maze: where they still disagree, and which path they have marked so far.

Legend: A shown iterations, H and W pixels, R and C rows and columns of agents, N agents, B batch, K iterations.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from callbacks.figures import rasterise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

WALL, START, GOAL, PATH = 1, 3, 4, 5
COLOURS = {WALL: "#404040", START: "#009E73", GOAL: "#CC79A7"}
RIGHT, WRONG, MISSING = "#0072B2", "#D55E00", "#BFD9EE"
DECADES = 4


def branch_points(maze: Tensor) -> Tensor:
    """Mark the open pixels of mazes ``[B, H, W]`` that have at least three open neighbours; outside is wall."""
    open_BHW = maze > WALL
    padded = functional.pad(open_BHW.int(), (1, 1, 1, 1))
    neighbours = padded[:, :-2, 1:-1] + padded[:, 2:, 1:-1] + padded[:, 1:-1, :-2] + padded[:, 1:-1, 2:]
    return open_BHW & (neighbours >= 3)


def residual_at_branches(maze: Tensor, primal: Tensor, rows: int, patch: int, stride: int) -> Tensor:
    """Return for each maze the mean residual of the agents whose patch holds a branch point, over that of all other agents.

    Agents stand in a grid, row by row; that in row r and column c sees the square of ``patch`` pixels whose upper left corner is
    ``(r * stride, c * stride)``.

    Args:
        maze: mazes, ``[B, H, W]``.
        primal: residuals, ``[K, N, B]``; all K count.
        rows: rows of agents.
        patch: side of a patch.
        stride: pixels between neighbouring patches.

    Returns:
        The ratios, ``[B]``; not a number where either kind of agent is missing.
    """
    columns = primal.shape[1] // rows
    low, right = (
        max((agents - 1) * stride + patch - side, 0) for agents, side in zip((rows, columns), maze.shape[1:], strict=True)
    )
    points = functional.pad(branch_points(maze).float(), (0, right, 0, low))
    at_branch_BN = functional.max_pool2d(points, patch, stride).flatten(1) > 0
    mean_BN = primal.float().mean(dim=0).t()
    sums = [torch.stack([(mean_BN * kind).sum(dim=1), kind.sum(dim=1)]) for kind in (at_branch_BN, ~at_branch_BN)]
    (branch_B, branches_B), (other_B, others_B) = sums
    return (branch_B / branches_B) / (other_B / others_B)


def residual_strip(maze: Tensor, solution: Tensor, answers: Tensor, primal_by_agent: Tensor, titles: Sequence[str]) -> "Figure":
    """Draw the maze and its solution, then for each shown iteration the agents' residuals above the path that they have marked.

    All residuals share one logarithmic colour scale. Each agent is drawn as an equal part of the maze, which is where its patch
    lies, with the edges of the walls over it. Path pixels are blue where they are right, orange and crossed where they are wrong,
    pale where they are missing.

    Args:
        maze: tokens, ``[H, W]``.
        solution: tokens with the path, ``[H, W]``.
        answers: tokens, ``[A, H, W]``.
        primal_by_agent: primal residual of each agent on its place, ``[A, R, C]``.
        titles: one title an iteration.
    """
    from matplotlib.figure import Figure

    height, width = maze.shape
    panel = min(max(1.75, 0.1 * width), 3.5)
    pixel = 72 * panel / width
    figure = Figure(figsize=(panel * (len(answers) + 1) + 1.1, 2 * panel * height / width + 0.9), layout="constrained")
    panels = figure.subplots(2, len(answers) + 1, squeeze=False)
    _draw_path(panels[0, 0], maze, solution, None, pixel)
    panels[0, 0].set_title("maze")
    _draw_path(panels[1, 0], maze, solution, solution, pixel)
    panels[1, 0].set_title("solution")
    scale = _log_scale(primal_by_agent)
    for (above, below), answer, primal, title in zip(panels.T[1:], answers, primal_by_agent, titles, strict=True):
        image = _draw_residuals(above, maze, primal, scale, pixel)
        above.set_title(title)
        _draw_path(below, maze, solution, answer, pixel)
        below.set_title(_verdict(answer, solution))
    figure.colorbar(image, ax=panels[0, 1:], label="primal residual", extend="min", shrink=0.9)
    _add_legend(figure)
    return figure


def residual_frames(maze: Tensor, solution: Tensor, answers: Tensor, primal_by_agent: Tensor) -> Iterator[np.ndarray]:
    """Draw the residuals beside the marked path once for each iteration; arguments as for :func:`residual_strip`, with A = K."""
    from matplotlib.figure import Figure

    height, width = maze.shape
    pixel = 72 * 2.8 / width
    figure = Figure(figsize=(6.6, 2.8 * height / width + 0.9), dpi=100, layout="constrained")
    left, right = figure.subplots(1, 2)
    image = _draw_residuals(left, maze, primal_by_agent[0], _log_scale(primal_by_agent), pixel)
    figure.colorbar(image, ax=left, label="primal residual", extend="min", shrink=0.9)
    _add_legend(figure)
    for k, (answer, primal) in enumerate(zip(answers, primal_by_agent, strict=True), start=1):
        image.set_data(primal.float().numpy())
        left.set_title(f"iteration {k} of {len(answers)}")
        right.clear()
        _draw_path(right, maze, solution, answer, pixel)
        right.set_title(_verdict(answer, solution))
        yield rasterise(figure)
        figure.set_layout_engine("none")  # what the first frame settled holds for all


def _log_scale(primal: Tensor) -> "Normalize":
    """Return one logarithmic scale for all residuals: from the largest down to the smallest, ``DECADES`` decades at most."""
    from matplotlib.colors import LogNorm

    largest = max(float(primal.max()), torch.finfo(torch.float32).tiny * 10**DECADES)
    return LogNorm(min(max(float(primal.min()), largest / 10**DECADES), largest / 10), largest, clip=True)


def _draw_residuals(axes: "Axes", maze: Tensor, primal_RC: Tensor, scale: "Normalize", pixel: float) -> Any:
    """Draw each agent's residual on its part of the maze, and the edges of the walls over it; a pixel has ``pixel`` points."""
    height, width = maze.shape
    extent = (-0.5, width - 0.5, height - 0.5, -0.5)
    image = axes.imshow(primal_RC.float().numpy(), norm=scale, cmap="viridis", extent=extent, interpolation="nearest")
    wall = maze.numpy() == WALL
    (below, across), (down, beside) = np.nonzero(wall[1:] != wall[:-1]), np.nonzero(wall[:, 1:] != wall[:, :-1])
    for colour, thickness in (
        ("black", min(2.0, 0.18 * pixel)),
        ("white", min(0.9, 0.08 * pixel)),
    ):  # seen on dark and on bright agents
        axes.hlines(below + 0.5, across - 0.5, across + 0.5, colors=colour, linewidth=thickness, capstyle="projecting")
        axes.vlines(beside + 0.5, down - 0.5, down + 0.5, colors=colour, linewidth=thickness, capstyle="projecting")
    axes.set_axis_off()
    return image


def _draw_path(axes: "Axes", maze: Tensor, solution: Tensor, answer: Tensor | None, pixel: float) -> None:
    """Draw the maze, and the path of an answer if there is one; a pixel has ``pixel`` points."""
    from matplotlib.colors import to_rgb

    pixels = np.ones((*maze.shape, 3))
    for token, colour in COLOURS.items():
        pixels[maze.numpy() == token] = to_rgb(colour)
    if answer is not None:
        marked, path = (answer == PATH).numpy(), (solution == PATH).numpy()
        for where, colour in ((marked & path, RIGHT), (marked & ~path, WRONG), (path & ~marked, MISSING)):
            pixels[where] = to_rgb(colour)
        rows, columns = np.nonzero(marked & ~path)
        axes.scatter(columns, rows, s=(0.3 * pixel) ** 2, marker="x", color="white", linewidths=0.08 * pixel)
    axes.imshow(pixels, interpolation="nearest")
    for token, letter in ((START, "S"), (GOAL, "G")):
        for row, column in (maze == token).nonzero().tolist():
            axes.text(column, row, letter, ha="center", va="center", fontsize=min(9, 0.6 * pixel), fontweight="bold", color="white")
    axes.set_axis_off()


def _verdict(answer: Tensor, solution: Tensor) -> str:
    """Count the pixels that are wrongly marked or missing."""
    wrong = int(((answer == PATH) != (solution == PATH)).sum())
    return f"{wrong} px wrong" if wrong else "solved"


def _add_legend(figure: "Figure") -> None:
    from matplotlib.patches import Patch

    names = {"right": RIGHT, "wrong": WRONG, "missing": MISSING}
    handles = [Patch(facecolor=colour, label=f"path: {name}") for name, colour in names.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=9, frameon=False)
