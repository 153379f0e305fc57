"""Figures of DTop-p's experiments."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from benchmarks.results import Record, aggregate
from benchmarks.style import line_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEPTH = "test/active_layer"


def depth_profile_figure(records: Sequence[Record], titles: Mapping[str, str]) -> "Figure":
    """Draw the active experts of each layer, mean over seeds with the standard error as a whisker."""
    from matplotlib.figure import Figure

    figure = Figure()
    axes = figure.subplots()
    for position, (variant, title) in enumerate(titles.items()):
        own = [record for record in records if record.variant == variant and record.metric.startswith(DEPTH)]
        layers = sorted({int(record.metric.removeprefix(DEPTH)) for record in own})
        if not layers:
            continue
        points = [aggregate([record.value for record in own if record.metric == f"{DEPTH}{layer}"]) for layer in layers]
        errors = [point.standard_error or 0.0 for point in points]
        axes.errorbar(
            [layer + 1 for layer in layers], [point.mean for point in points], errors, label=title, **line_style(position)
        )
    axes.set(xlabel="layer", ylabel="active experts a token")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_ylim(bottom=0)
    figure.legend(title="mean and standard error", loc="outside right center")
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
    table = [[deviation.get((kp, ki), np.nan) for kp in PROPORTIONAL] for ki in INTEGRAL]
    stable = {record.variant for record in records if record.metric == "radius" and record.value < 1}
    figure = Figure()
    axes = figure.subplots()
    image = axes.imshow(table, origin="lower", aspect="auto", cmap="viridis", norm=LogNorm())
    for row, ki in enumerate(INTEGRAL):
        for column, kp in enumerate(PROPORTIONAL):
            mark = "" if name_of(kp, ki) in stable else "\npredicted\nunstable"
            value = table[row][column]
            axes.text(column, row, f"{value:.2f}{mark}", ha="center", va="center", fontsize=7, color="w" if value < 1 else "k")
    axes.set_xticks(range(len(PROPORTIONAL)), [f"{kp:g}" for kp in PROPORTIONAL])
    axes.set_yticks(range(len(INTEGRAL)), [f"{ki:g}" for ki in INTEGRAL])
    axes.set(xlabel="proportional gain", ylabel="integral gain")
    axes.grid(False)
    figure.colorbar(image, label="deviation from the target (experts, root mean square)")
    return figure
