"""Figures of TLVS's experiments."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from benchmarks.results import Record, by_variant
from benchmarks.style import line_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUITE = "test/balanced/"


def trade_off_figure(records: Sequence[Record], titles: Mapping[str, str]) -> "Figure":
    """Draw wrong objects against objects that are named, over the strengths of each method, mean over seeds."""
    import numpy as np
    from matplotlib.figure import Figure

    strengths = {float(match[1]) for record in records if (match := re.match(rf"{SUITE}alpha_([\d.]+)/", record.metric))}
    figure = Figure(figsize=(6.4, 6.4))
    axes = figure.subplots()
    for position, (variant, title) in enumerate(titles.items()):
        points = []
        for strength in sorted({*strengths, 1.0}):
            name = "" if strength == 1 else f"alpha_{strength:g}/"
            found = [by_variant(records, f"{SUITE}{name}{metric}").get(variant) for metric in ("recall", "chair_i")]
            if all(found):
                points.append([100 * float(np.mean(values)) for values in found if values])
        if points:
            axes.plot(*zip(*points, strict=True), label=title, **line_style(position))
    axes.set(xlabel="objects that are named (%)", ylabel="wrong objects of those named (%)")
    figure.legend(title="mean over seeds, weak to strong", loc="outside lower center", ncols=2)
    return figure
