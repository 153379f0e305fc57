"""Figures of discrete flow models: an error against what samplers cost, a row a source."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING

from benchmarks.methods.dfm.samplers import SAMPLERS, SOURCES
from benchmarks.results import Record, aggregate
from benchmarks.style import line_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CALCULATED = re.compile(r"(.+)_at_(\d+)")
TRAINED = re.compile(r"test/\{row\}/calls_(\d+)/(.+)")
EVALUATIONS = {"evals", "evals_per_sample"}
COSTS = {"network calls": 0, "network evaluations a sample": 1}


@dataclass
class Reached:
    """What a sampler reached within a number of calls, a number a seed."""

    values: list[float] = field(default_factory=list)
    evals: list[float] = field(default_factory=list)


def reached(records: Sequence[Record], metric: str, source: str = "") -> dict[str, dict[str, dict[int, Reached]]]:
    """Collect what was reached by source, sampler and number of calls.

    Args:
        records: those of a calculation, ``<metric>_at_<n>`` of a variant ``<source>_<sampler>``; or of trained networks,
            ``test/{row}/calls_<n>/<metric>`` of a sampler, whose evaluations include the last draw of masks: it is taken off.
        metric: name of the metric.
        source: source of trained networks.
    """
    found: dict[str, dict[str, dict[int, Reached]]] = {}
    for record in records:
        trained, calculated = TRAINED.fullmatch(record.metric), CALCULATED.fullmatch(record.metric)
        if trained:
            sampler, (calls, name), own_source = record.variant, trained.groups(), source
        elif calculated:
            (name, calls), (own_source, _, sampler) = calculated.groups(), record.variant.partition("_")
        else:
            continue
        if name in EVALUATIONS or name == metric:
            here = found.setdefault(own_source, {}).setdefault(sampler, {}).setdefault(int(calls), Reached())
            last_draw = bool(trained) and own_source == "mask"
            (here.values if name == metric else here.evals).append(record.value - (last_draw and name != metric))
    return found


def cost_figure(
    records: Sequence[Record], titles: Mapping[str, str], *, metric: str, y_label: str, source: str = "", floor: str = ""
) -> "Figure":
    """Draw a positive metric against calls and against evaluations, mean over seeds with the standard error as a whisker.

    Args:
        records: what was measured, see :func:`reached`.
        titles: of no consequence: sources and samplers have their own.
        metric: name of the metric.
        y_label: what is measured.
        source: source of trained networks.
        floor: sampler that is drawn as a level line, the mean over its values.
    """
    from matplotlib.figure import Figure

    found = reached(records, metric, source)
    sources = [kind for kind in SOURCES if kind in found]
    shown = [name for name in SAMPLERS if any(name in found[kind] for kind in sources)]
    figure = Figure(figsize=(9.0, 0.9 + 3.2 * len(sources)))
    rows = figure.subplots(len(sources), len(COSTS), sharey="row", squeeze=False)
    for row, kind in zip(rows, sources, strict=True):
        for axes, (x_label, cost) in zip(row, COSTS.items(), strict=True):
            for position, name in enumerate(shown):
                points = {calls: point for calls, point in sorted(found[kind].get(name, {}).items()) if point.values}
                if points:
                    x = [fmean(point.evals) if cost else float(calls) for calls, point in points.items()]
                    means = [aggregate(point.values) for point in points.values()]
                    errors = [mean.standard_error or 0.0 for mean in means]
                    axes.errorbar(x, [mean.mean for mean in means], errors, label=SAMPLERS[name], **line_style(position))
            if floor in found[kind]:
                level = fmean(value for point in found[kind][floor].values() for value in point.values)
                axes.axhline(level, color="0.3", linestyle="--", linewidth=1, label="true law at the end of the grid")
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter("{x:g}")
            axes.set(xlabel=x_label, title=SOURCES[kind], yscale="log")
        row[0].set_ylabel(y_label)
    figure.legend(*rows[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure
