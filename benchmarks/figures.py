"""Figures that several methods draw from their records."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from benchmarks.bootstrap import bootstrap_interval
from benchmarks.results import Aggregate, Record, aggregate
from benchmarks.style import line_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEAST_RUNS_OF_A_BAND = 3
LEGEND_LINE, LEGEND_LINES = 0.21, 4  # inches of a line, and how many lines a figure of the usual height has room for


def curve(records: Sequence[Record], variant: str, metric: str, plain_at: int | None = None) -> dict[int, Aggregate]:
    """Aggregate what ``curve_values`` collects over seeds."""
    return {k: aggregate(values) for k, values in curve_values(records, variant, metric, plain_at).items()}


def curve_values(records: Sequence[Record], variant: str, metric: str, plain_at: int | None = None) -> dict[int, list[float]]:
    """Collect the metrics ``<metric>_at_<k>`` of one variant, a value a seed, in the order of k.

    ``plain_at`` is the k that the metric's plain name stands for.
    """
    pattern = re.compile(re.escape(metric) + r"_at_(\d+)")
    values: dict[int, list[float]] = {}
    for record in records:
        match = pattern.fullmatch(record.metric)
        if match and record.variant == variant:
            values.setdefault(int(match[1]), []).append(record.value)
        elif record.metric == metric and record.variant == variant and plain_at is not None:
            values.setdefault(plain_at, []).append(record.value)
    return {k: values[k] for k in sorted(values)}


def horizon_figure(
    records: Sequence[Record],
    titles: Mapping[str, str],
    *,
    metrics: Mapping[str, str],
    x_label: str,
    y_label: str,
    trained_at: int | tuple[int, int],
    plain_at: int | None = None,
) -> "Figure":
    """Draw shares in percent against the number of test iterations, with the standard error as a band.

    Args:
        records: what was measured.
        titles: titles of the variants by name; one without iterations is a level line.
        metrics: metric of each panel by the panel's title.
        x_label, y_label: what the axes show.
        trained_at: number of iterations in training, or the least and the greatest.
        plain_at: iterations that a metric's plain name stands for; by default the greatest number in training.
    """
    from matplotlib.figure import Figure

    least, greatest = (trained_at, trained_at) if isinstance(trained_at, int) else trained_at
    plain_at = greatest if plain_at is None else plain_at
    figure = Figure()
    if len(metrics) > 1:
        figure.set_size_inches(3.2 * len(metrics) + 0.6, 4.8)
    panels = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
    for axes, (panel, metric) in zip(panels, metrics.items(), strict=True):
        for position, (variant, title) in enumerate(titles.items()):
            points = curve(records, variant, metric, plain_at)
            if list(points) == [plain_at]:
                axes.axhline(100 * points[plain_at].mean, label=title, **{**line_style(position), "marker": None})
            elif points:
                _draw_share(axes, points, title, position)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:.0f}")
        axes.axvspan(least, greatest, color="grey", alpha=0.3, linewidth=1, label="K in training")
        axes.set(xlabel=x_label, title=panel, ylim=(-2, 102))
    panels[0].set_ylabel(f"{y_label} (%)")
    figure.legend(*panels[0].get_legend_handles_labels(), title="mean and standard error", loc="outside lower center", ncols=2)
    return figure


def severity_figure(
    records: Sequence[Record],
    titles: Mapping[str, str],
    *,
    panels: Mapping[str, Mapping[float, str]],
    y_label: str,
) -> "Figure":
    """Draw shares in percent against the severity of corruptions, with the standard error as a band.

    Args:
        records: what was measured.
        titles: titles of the variants by name.
        panels: for each panel its x label, and the metric by severity.
        y_label: what is shared.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.2 * len(panels) + 0.6, 4.8))
    row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (x_label, severities) in zip(row, panels.items(), strict=True):
        for position, (variant, title) in enumerate(titles.items()):
            own = {
                x: [record.value for record in records if (record.variant, record.metric) == (variant, metric)]
                for x, metric in severities.items()
            }
            if all(own.values()):
                _draw_share(axes, {x: aggregate(values) for x, values in own.items()}, title, position)
        axes.set(xlabel=x_label, ylim=(-2, 102))
    row[0].set_ylabel(f"{y_label} (%)")
    figure.legend(*row[0].get_legend_handles_labels(), title="mean and standard error", loc="outside lower center", ncols=2)
    return figure


def _draw_share(axes: "Axes", points: Mapping[Any, Aggregate], title: str, position: int) -> None:
    """Draw one variant's means in percent with the standard error as a band."""
    mean = [100 * point.mean for point in points.values()]
    error = [100 * (point.standard_error or 0.0) for point in points.values()]
    style = line_style(position)
    axes.plot(list(points), mean, label=title, **style)
    low, high = zip(*((m - e, m + e) for m, e in zip(mean, error, strict=True)), strict=True)
    axes.fill_between(list(points), low, high, color=style["color"], alpha=0.2, linewidth=0)


def convergence_figure(
    records: Sequence[Record], titles: Mapping[str, str], *, metric: str, x_label: str, y_label: str
) -> "Figure":
    """Draw a positive error against the iteration on a logarithmic axis: runs as thin lines, their geometric mean thick."""
    figure, axes = _axes()
    for position, (variant, title) in enumerate(titles.items()):
        style = line_style(position)
        _draw_runs(axes, records, variant, metric, style["color"])
        logarithms = [replace(record, value=math.log(max(record.value, 1e-300))) for record in records]
        points = curve(logarithms, variant, metric)
        axes.plot(list(points), [math.exp(point.mean) for point in points.values()], label=title, **style)
    axes.set(yscale="log", xlabel=x_label, ylabel=y_label)
    axes.legend(title="geometric mean; thin: single problems")
    return figure


def learning_curve_figure(
    records: Sequence[Record], titles: Mapping[str, str], *, metric: str, x_label: str, y_label: str
) -> "Figure":
    """Draw a learning curve of each variant: runs as thin lines, their mean thick, its 95 % bootstrap interval from three runs on.

    Args:
        records: what was measured, the metric as ``<metric>_at_<step>``.
        titles: titles of the variants by name; one that has no such metric is left out.
        metric: an entry of ``Experiment.learning_curve``, logged at the same steps by all runs.
        x_label, y_label: what the axes show.
    """
    figure, axes = _axes()
    for position, (variant, title) in enumerate(titles.items()):
        points = curve_values(records, variant, metric)
        if not points:
            continue
        style = line_style(position)
        _draw_runs(axes, records, variant, metric, style["color"])
        axes.plot(list(points), [fmean(values) for values in points.values()], label=title, **{**style, "marker": None})
        intervals = {k: bootstrap_interval(values) for k, values in points.items() if len(values) >= LEAST_RUNS_OF_A_BAND}
        if intervals:
            low, high = zip(*intervals.values(), strict=True)
            axes.fill_between(list(intervals), low, high, color=style["color"], alpha=0.2, linewidth=0)
    axes.set(xlabel=x_label, ylabel=y_label)
    figure.set_figheight(figure.get_figheight() + LEGEND_LINE * max(0, len(axes.get_legend_handles_labels()[1]) - LEGEND_LINES))
    figure.legend(title="mean; band: 95 % bootstrap interval; thin: single runs", loc="outside lower center")
    return figure


def bar_figure(records: Sequence[Record], titles: Mapping[str, str], *, metrics: Mapping[str, str], x_label: str) -> "Figure":
    """Draw shares in percent as bars, one a metric and variant, with the standard error as a whisker.

    Args:
        records: what was measured.
        titles: titles of the variants by name.
        metrics: metric of each group of bars by its title.
        x_label: what is shared.
    """
    figure, axes = _axes()
    height = 0.8 / len(titles)
    for position, (variant, title) in enumerate(titles.items()):
        shares = [
            aggregate([record.value for record in records if (record.variant, record.metric) == (variant, metric)])
            for metric in metrics.values()
        ]
        places = [group + position * height for group in range(len(metrics))]
        axes.barh(
            places,
            [100 * share.mean for share in shares],
            height,
            xerr=[100 * (share.standard_error or 0.0) for share in shares],
            color=line_style(position)["color"],
            label=title,
        )
    axes.set_yticks([group + 0.4 - height / 2 for group in range(len(metrics))], list(metrics))
    axes.invert_yaxis()
    axes.set(xlabel=f"{x_label} (%)", xlim=(0, 102))
    if len(titles) > 1:
        axes.legend()
    return figure


def growth_figure(records: Sequence[Record], titles: Mapping[str, str], *, metric: str, x_label: str, y_label: str) -> "Figure":
    """Draw a positive quantity, mean over seeds, against the number of iterations, from zero."""
    figure, axes = _axes()
    for position, (variant, title) in enumerate(titles.items()):
        points = curve(records, variant, metric)
        axes.plot(list(points), [point.mean for point in points.values()], label=title, **line_style(position))
    axes.set(xlabel=x_label, ylabel=y_label)
    axes.set_ylim(bottom=0)
    axes.legend()
    return figure


def _draw_runs(axes: "Axes", records: Sequence[Record], variant: str, metric: str, color: str) -> None:
    """Draw every run of a variant as a thin line."""
    own = [record for record in records if record.variant == variant]
    for seed in sorted({record.seed for record in own}):
        points = curve([record for record in own if record.seed == seed], variant, metric)
        axes.plot(list(points), [point.mean for point in points.values()], color=color, linewidth=0.7, alpha=0.5)


def _axes() -> tuple["Figure", "Axes"]:
    """Return an empty figure that no window owns."""
    from matplotlib.figure import Figure

    figure = Figure()
    return figure, figure.subplots()
