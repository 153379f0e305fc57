"""Pictures of what samplers of tokens make at a number of network calls, and of how far it is from the data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from callbacks.figure_style import PALETTE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKERS = "osD^vP*X"
LINE_BREAK = "\u21b5"


@dataclass(frozen=True)
class Point:
    """What a sampler reached at a number of network calls.

    Attributes:
        calls: calls that were allowed.
        evals: times that the network saw a sample, in the mean.
        value: what is measured.
    """

    calls: int
    evals: float
    value: float


def sampler_figure(curves: Mapping[str, Sequence[Point]], y_label: str, floor: float | None = None) -> "Figure":
    """Draw a measure of each sampler against the allowed calls and against what samples really cost.

    Args:
        curves: points of each sampler by its name, in the order of calls.
        y_label: what is measured.
        floor: the same of held-out data, drawn as a line.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 4.2), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    costs = {"network calls": "calls", "network evaluations a sample": "evals"}
    positive = all(point.value > 0 for points in curves.values() for point in points)
    for axes, (x_label, cost) in zip(panels, costs.items(), strict=True):
        for place, (name, points) in enumerate(curves.items()):
            style = {"color": PALETTE[place % len(PALETTE)], "marker": MARKERS[place % len(MARKERS)]}
            axes.plot([getattr(point, cost) for point in points], [point.value for point in points], label=name, **style)
        if floor is not None:
            axes.axhline(floor, color="0.3", linestyle="--", label="held-out data")
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set(xlabel=x_label)
        if positive:
            axes.set_yscale("log")
    panels[0].set_ylabel(y_label)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def image_sheet(images: Mapping[str, Tensor], low: float = -1.0, high: float = 1.0) -> "Figure":
    """Draw images in a grid, a named row each.

    Args:
        images: of each row ``[n, 1, H, W]``.
        low: value that is black.
        high: value that is white.
    """
    from matplotlib.figure import Figure

    count, _, height, width = next(iter(images.values())).shape
    sheet = np.ones((len(images) * (height + 1) - 1, count * (width + 1) - 1))
    for row, shown in enumerate(images.values()):
        grey = ((shown.float().cpu() - low) / (high - low)).clamp(0, 1).numpy()
        for column in range(count):
            top, left = row * (height + 1), column * (width + 1)
            sheet[top : top + height, left : left + width] = grey[column, 0]
    figure = Figure(figsize=(0.5 * count + 1.4, 0.5 * len(images) * height / width + 0.4), layout="constrained")
    axes = figure.subplots()
    axes.imshow(sheet, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([row * (height + 1) + (height - 1) / 2 for row in range(len(images))], list(images))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.grid(False)
    return figure


def text_sheet(texts: Mapping[str, Sequence[tuple[str, float]]], what: str) -> "Figure":
    """Write texts under the name of each sampler, each with a number.

    Args:
        texts: texts of each sampler with their numbers.
        what: what the numbers say.
    """
    from matplotlib.figure import Figure

    lines = sum(len(own) + 1 for own in texts.values())
    longest = max(len(text) for own in texts.values() for text, _ in own)
    figure = Figure(figsize=(max(0.065 * longest + 1.2, 3.5), 0.17 * (lines + 1.5) + 0.1), layout="none")  # type: ignore[arg-type]
    axes = figure.add_axes((0.01, 0.01, 0.98, 0.98))
    axes.set(xlim=(0, 1), ylim=(lines + 1.5, 0))
    axes.axis("off")
    axes.text(1.0, 0.5, what, ha="right", va="center", fontsize=7)
    place = 1.5
    for name, own in texts.items():
        axes.text(0.0, place, name, ha="left", va="center", fontsize=8, fontweight="bold")
        place += 1
        for text, number in own:
            written = text.replace("\n", LINE_BREAK).replace("$", r"\$")
            axes.text(0.0, place, written, ha="left", va="center", fontsize=7, family="monospace")
            axes.text(1.0, place, f"{number:.2f}", ha="right", va="center", fontsize=7, family="monospace")
            place += 1
    return figure
