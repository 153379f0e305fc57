"""Figures of GESC's experiments."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from benchmarks.bootstrap import bootstrap_interval
from benchmarks.results import Record, by_variant
from benchmarks.style import line_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GAINS = {"over_gcn": "GESC minus GCN", "over_mlp": "GESC minus MLP", "sic": "SIC on minus off"}


def homophily_figure(records: Sequence[Record], titles: Mapping[str, str]) -> "Figure":
    """Draw paired differences of accuracy, with 95 % bootstrap intervals, against edge homophily; a numbered point a graph."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, 4.2))
    homophily = {name: values[0] for name, values in by_variant(records, "homophily").items()}
    numbers = {name: str(number) for number, name in enumerate(sorted(homophily, key=lambda name: homophily[name]), start=1)}
    panels = figure.subplots(1, len(GAINS), sharex=True)
    for position, (axes, (metric, title)) in enumerate(zip(panels, GAINS.items(), strict=True)):
        style = line_style(position)
        for name, values in by_variant(records, metric).items():
            low, high = bootstrap_interval(values)
            axes.plot([homophily[name]] * 2, [100 * low, 100 * high], color=style["color"], linewidth=1.2)
            axes.plot(homophily[name], 100 * fmean(values), color=style["color"], marker=style["marker"], linestyle="none")
            axes.annotate(numbers[name], (homophily[name], 100 * fmean(values)), (5, 3), textcoords="offset points", fontsize=8)
        axes.axhline(0.0, color="grey", linewidth=0.8)
        axes.set(title=title, xlabel="edge homophily")
    panels[0].set_ylabel("test accuracy (points)")
    for name, number in numbers.items():
        panels[0].plot([], [], " ", label=f"{number}  {titles[name]}")
    figure.legend(loc="outside right upper", handlelength=0)
    return figure
