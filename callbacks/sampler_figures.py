"""Figures of a comparison of samplers at equal numbers of network calls."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from callbacks.figure_style import PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", ":")


def curve_figure(values: Mapping[str, Mapping[str, Mapping[int, float]]], levels: Mapping[str, float] | None = None) -> "Figure":
    """Draw positive quantities against network calls, a panel each, on logarithmic axes; what is not positive is left out.

    Args:
        values: by the name of the quantity, then that of the sampler, its value at each number of calls.
        levels: a level to compare with, by the name of the quantity.
    """
    from matplotlib.figure import Figure

    longest = max(len(name) for samplers in values.values() for name in samplers)
    figure = Figure(figsize=(4.4 * len(values) + 0.08 * longest + 0.8, 4.0), layout="constrained")
    panels = figure.subplots(1, len(values), squeeze=False)[0]
    for axes, (quantity, samplers) in zip(panels, values.items(), strict=True):
        for position, (name, points) in enumerate(samplers.items()):
            shown = {calls: value for calls, value in sorted(points.items()) if value > 0}
            place, turn = position % len(PALETTE), position // len(PALETTE)
            style = {"color": PALETTE[place], "marker": MARKERS[place], "linestyle": DASHES[turn % len(DASHES)]}
            axes.plot(list(shown), list(shown.values()), label=name, **style)
        if levels and levels.get(quantity, 0) > 0:
            axes.axhline(levels[quantity], color="0.4", linewidth=1, linestyle="-.", label="converged solution")
        _log_axes(axes, sorted({calls for points in samplers.values() for calls in points}))
        axes.set(xlabel="network calls", ylabel=quantity)
    entries = dict(pair[::-1] for axes in panels for pair in zip(*axes.get_legend_handles_labels(), strict=True))
    figure.legend(list(entries.values()), list(entries), loc="outside right center")
    return figure


def sheet_figure(images: Sequence[Sequence["Tensor"]], rows: Sequence[str], columns: Sequence[str]) -> "Figure":
    """Draw images in a table: a row a sampler, a column a number of network calls; a cell shows its images side by side.

    Args:
        images: of each row and column n images in [-1, 1] with 1 or 3 channels, ``[n, C, H, W]``, or n points, ``[n, 2]``.
        rows: names of the rows.
        columns: names of the columns.

    Raises:
        ValueError: if a sample is neither such an image nor a point of the plane.
    """
    from matplotlib.figure import Figure

    first = images[0][0]
    points = first.ndim == 2 and first.shape[1] == 2
    if not points and (first.ndim != 4 or first.shape[1] not in (1, 3)):
        raise ValueError(f"samples of shape {list(first.shape[1:])} cannot be drawn: leave DiffusionSheet out")
    width = 1.3 if points else 0.4 * len(first) * first.shape[3] / first.shape[2]
    figure = Figure(figsize=(width * len(columns) + 1.2, (1.3 if points else 0.5) * len(rows) + 0.5), layout="constrained")
    table = figure.subplots(len(rows), len(columns), squeeze=False)
    for row, name in enumerate(rows):
        for column, (axes, samples) in enumerate(zip(table[row], images[row], strict=True)):
            if points:
                axes.scatter(*samples.cpu().numpy().T, s=1, color=PALETTE[0], linewidths=0)
                axes.set(xlim=(-1.8, 1.8), ylim=(-1.8, 1.8), aspect="equal")
            else:
                shown = ((samples.float().cpu() + 1) / 2).clamp(0, 1)
                strip = np.concatenate([image.permute(1, 2, 0).numpy() for image in shown], axis=1)
                axes.imshow(
                    strip.squeeze(-1) if strip.shape[-1] == 1 else strip, cmap="gray", vmin=0, vmax=1, interpolation="nearest"
                )
            axes.set_xticks([])
            axes.set_yticks([])
            axes.grid(False)
            axes.spines[:].set_visible(points)
            if column == 0:
                axes.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
            if row == 0:
                axes.set_title(columns[column], fontsize=8)
    return figure


def _log_axes(axes: "Axes", ticks: list[int]) -> None:
    axes.set(xscale="log", yscale="log")
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_xticks([], minor=True)
