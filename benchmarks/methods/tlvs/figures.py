"""Figures of TLVS's experiments."""

import re
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from benchmarks.results import Record, by_variant
from benchmarks.style import line_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUITE = "test/balanced/"
QUESTIONS = ("random", "popular", "adversarial")
UNSTEERED = "vlm"


def trade_off_figure(records: Sequence[Record], titles: Mapping[str, str]) -> "Figure":
    """Draw wrong objects against objects that are named, over the strengths of each method, mean over seeds."""
    import numpy as np
    from matplotlib.figure import Figure

    strengths = {float(match[1]) for record in records if (match := re.match(rf"{SUITE}alpha_([\d.]+)/", record.metric))}
    figure = Figure(figsize=(10.0, 5.0))
    axes = figure.subplots()
    for position, (variant, title) in enumerate((variant, title) for variant, title in titles.items() if variant != UNSTEERED):
        points = []
        for strength in sorted({*strengths, 1.0}):
            name = "" if strength == 1 else f"alpha_{strength:g}/"
            found = [by_variant(records, f"{SUITE}{name}{metric}").get(variant) for metric in ("recall", "chair_i")]
            if all(found):
                points.append([100 * float(np.mean(values)) for values in found if values])
        if points:
            axes.plot(*zip(*points, strict=True), label=title, **line_style(position))
    axes.set(xlabel="objects that are named (%)", ylabel="wrong objects of those named (%)")
    figure.legend(title="mean over seeds, weak to strong", loc="outside right upper")
    return figure


def yes_figure(records: Sequence[Record], titles: Mapping[str, str]) -> "Figure":
    """Draw the share of yes among the answers of each method, mean over seeds, a row a method and a mark a kind of question."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 4.8))
    axes = figure.subplots()
    for position, kind in enumerate(QUESTIONS):
        found = by_variant(records, f"test/pope_{kind}/yes")
        rows = [row for row, variant in enumerate(titles) if variant in found]
        shares = [100 * fmean(found[variant]) for variant in titles if variant in found]
        axes.plot(shares, rows, label=f"{kind} questions", **{**line_style(position), "linestyle": "none"})
    axes.axvline(50, color="grey", linewidth=0.8)
    axes.set_yticks(range(len(titles)), list(titles.values()))
    axes.invert_yaxis()
    axes.set(xlabel="answers that are yes (%); right: 50")
    figure.legend(loc="outside upper right", ncols=len(QUESTIONS))
    return figure
