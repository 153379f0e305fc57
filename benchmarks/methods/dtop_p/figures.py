"""Figures of DTop-p's experiments."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from benchmarks.figures import curve
from benchmarks.results import Record, aggregate
from benchmarks.style import line_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def profile_figure(
    records: Sequence[Record], titles: Mapping[str, str], *, metric: str, first: int, x_label: str, y_label: str
) -> "Figure":
    """Draw the metrics ``<metric>0``, ``<metric>1``, ... of each variant, mean over seeds with the standard error as a whisker.

    Args:
        records: what was measured.
        titles: titles of the variants by name; one that has no such metrics is left out.
        metric: beginning of the names.
        first: what the number 0 is called on the axis.
        x_label, y_label: what the axes show.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(8.4, 3.8))
    axes = figure.subplots()
    for position, (variant, title) in enumerate(titles.items()):
        own = [record for record in records if record.variant == variant and record.metric.startswith(metric)]
        numbers = sorted({int(record.metric.removeprefix(metric)) for record in own})
        if not numbers:
            continue
        points = [aggregate([record.value for record in own if record.metric == f"{metric}{number}"]) for number in numbers]
        errors = [point.standard_error or 0.0 for point in points]
        places, means = [number + first for number in numbers], [point.mean for point in points]
        axes.errorbar(places, means, errors, label=title, **line_style(position))
    axes.set(xlabel=x_label, ylabel=y_label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(bottom=0)
    figure.legend(title="mean and standard error", loc="outside right center")
    return figure


def heat_map_figure(records: Sequence[Record], titles: Mapping[str, str], *, variant: str, metric: str, layers: int) -> "Figure":
    """Draw the active experts of each layer against optimiser steps, mean over seeds.

    Args:
        records: what was measured, as ``<metric><layer>_at_<step>``.
        titles: titles of the variants by name.
        variant: whose layers are shown.
        metric: beginning of the names.
        layers: L.
    """
    from matplotlib.figure import Figure

    curves = [curve(records, variant, f"{metric}{layer}") for layer in range(layers)]
    steps = list(curves[0])
    table = [[points[step].mean for step in steps] for points in curves]
    figure = Figure()
    axes = figure.subplots()
    extent = (steps[0], steps[-1], layers + 0.5, 0.5)
    image = axes.imshow(table, aspect="auto", extent=extent, cmap="viridis", vmin=0, interpolation="nearest")
    axes.set(xlabel="optimiser steps", ylabel="layer", title=titles[variant])
    axes.set_yticks(range(1, layers + 1))
    axes.grid(False)
    figure.colorbar(image, label="active experts a token")
    return figure


def gain_map_figure(records: Sequence[Record], titles: Mapping[str, str]) -> "Figure":
    """Draw the deviation from the target over both gains, with the line beyond which a linear plant is unstable."""
    import numpy as np
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    from benchmarks.calculations.controller_gains import INTEGRAL, PROPORTIONAL, gains, name_of

    deviation = {
        gains(variant): np.mean([record.value for record in records if (record.variant, record.metric) == (variant, "deviation")])
        for variant in {record.variant for record in records}
    }
    table = np.array([[deviation.get((kp, ki), np.nan) for kp in PROPORTIONAL] for ki in INTEGRAL])
    stable = {record.variant for record in records if record.metric == "radius" and record.value < 1}
    figure = Figure()
    axes = figure.subplots()
    image = axes.imshow(table, origin="lower", aspect="auto", cmap="viridis", norm=LogNorm())
    for row, ki in enumerate(INTEGRAL):
        for column, kp in enumerate(PROPORTIONAL):
            mark = "" if name_of(kp, ki) in stable else "\npredicted\nunstable"
            value = table[row, column]
            axes.text(column, row, f"{value:.2f}{mark}", ha="center", va="center", fontsize=7, color="w" if value < 1 else "k")
    axes.set_xticks(range(len(PROPORTIONAL)), [f"{kp:g}" for kp in PROPORTIONAL])
    axes.set_yticks(range(len(INTEGRAL)), [f"{ki:g}" for ki in INTEGRAL])
    axes.set(xlabel="proportional gain", ylabel="integral gain")
    axes.grid(False)
    figure.colorbar(image, label="deviation (experts)")
    return figure
