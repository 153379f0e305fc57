"""Reports for people, generated from the records: ``docs/results/<method>.md`` and its figures."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.bootstrap import bootstrap_interval, interquartile_mean, mean
from benchmarks.experiments import Calculation, Experiment, Metric
from benchmarks.paired import HIGH, LOW
from benchmarks.results import Record, Results, aggregate, by_variant

MAX_COLUMNS_OF_ONE = 8
ROUNDING = 1e-9
STATISTICS = {"iqm": interquartile_mean, "bootstrap": mean}
HEADINGS = {
    "iqm": "IQM [95 % interval]",
    "bootstrap": "mean [95 % interval]",
    "standard_deviation": "mean ± standard deviation",
    "paired": "difference [95 % interval]",
}


def describe(experiment: Experiment | Calculation, method: str) -> dict[str, Any]:
    """Return what the report needs to know about an experiment beside its records."""
    return {
        "title": experiment.title,
        "detail": isinstance(experiment, Calculation) and experiment.detail,
        "description": experiment.description,
        "columns": [
            {"metric": m.name, "title": m.title, "percent": m.percent, "interval": m.interval} for m in _columns(experiment)
        ],
        "variants": dict(experiment.titles),
        "figures": {f"{method}_{figure.name}.png": figure.caption for figure in experiment.figures},
    }


def _columns(experiment: Experiment | Calculation) -> list[Metric]:
    """Return the columns of the table: what was measured, and what was compared sample by sample."""
    paired = experiment.paired if isinstance(experiment, Experiment) else ()
    return [*experiment.metrics, *(Metric(ratio.name, ratio.title, ratio.percent, "paired") for ratio in paired)]


def draw_figures(experiment: Experiment | Calculation, method: str, results: Results, folder: Path) -> list[Path]:
    """Draw the figures of an experiment into ``folder``; return their paths."""
    from benchmarks.style import save_figure

    paths = []
    for figure in experiment.figures:
        path = folder / f"{method}_{figure.name}.png"
        save_figure(partial(figure.draw, results.of(experiment.name), experiment.titles), path)
        paths.append(path)
    return paths


def markdown(method: str, results: Results) -> str:
    """Return the report of a method, a pure function of its results."""
    sections = [f"# {method}: measured results", "Generated from the JSON file of the same name; do not edit."]
    for name, experiment in results.experiments.items():
        records = results.of(name)
        if records:
            sections += _section(name, experiment, records)
    return "\n\n".join(sections) + "\n"


def format_runs(
    values: Sequence[float],
    percent: bool,
    interval: str = "standard_error",
    low: Sequence[float] = (),
    high: Sequence[float] = (),
) -> str:
    """Write ``mean ± standard error`` (or deviation) or ``(interquartile) mean [low, high]``; a single run has no interval.

    The bounds of a ``paired`` interval are given.
    """
    if not values:
        return "–"
    if not all(map(math.isfinite, values)):
        return "diverged"
    if interval == "paired":
        return f"{_number(fmean(values), percent)} [{_number(low[0], percent)}, {_number(high[0], percent)}]"
    if interval in STATISTICS and len(values) > 1:
        statistic = STATISTICS[interval]
        middle = float(statistic(np.asarray(values)))
        bounds = [_number(bound, percent) for bound in bootstrap_interval(values, statistic)]
        return f"{_number(middle, percent)} [{', '.join(bounds)}]"
    found = aggregate(values)
    error = found.standard_error
    if interval == "standard_deviation" and error is not None:
        error *= math.sqrt(found.n)
    return _number(found.mean, percent) if error is None else _with_error(found.mean, error, percent)


def table(header: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """Return a Markdown table whose first ``left`` columns are flush left and the others flush right."""
    ruler = ["---"] * left + ["---:"] * (len(header) - left)
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, ruler, *rows))


def _number(value: float, percent: bool) -> str:
    if percent:
        return f"{100 * value:.1f}"
    return f"{value:.2e}" if value != 0 and not 1e-3 <= abs(value) < 1e5 else f"{value:.4g}"


def _with_error(value: float, error: float, percent: bool) -> str:
    """Write a number with its error: two digits of the error, and as many places of the number. Rounding noise is no error."""
    error = 0.0 if error < ROUNDING * abs(value) else error
    if percent or error == 0 or not 1e-3 <= abs(value) < 1e5:
        return f"{_number(value, percent)} ± {_number(error, percent)}"
    places = max(0, 1 - math.floor(math.log10(error)))
    return f"{value:.{places}f} ± {error:.{places}f}"


def _section(name: str, experiment: dict[str, Any], records: list[Record]) -> list[str]:
    """Heading, text, table, figures, tuning and command of one experiment."""
    parts = [f"## {experiment['title']}", experiment["description"], results_table(experiment, records)]
    parts += [f"![{caption}]({file})\n\n*{caption}*" for file, caption in experiment["figures"].items()]
    if experiment.get("tuning"):
        parts.append(_tuning_table(experiment))
    source = experiment.get("provenance", {})
    if source:
        versions = ", ".join(f"{package} {version}" for package, version in source["versions"].items())
        parts.append(
            f"Command: `{source['command']}` (experiment `{name}`), revision {source['git'] or 'unknown'}, "
            f"{versions}, on {source['machine']}."
        )
    return parts


def results_table(experiment: dict[str, Any], records: Sequence[Record]) -> str:
    """Return the table of one experiment: a row for each variant, mean or interquartile mean over its runs with an interval.

    A column that no run measured is left out. A single variant with many measures is turned on its side: a row for each measure.
    """
    measured = {record.metric for record in records}
    columns = [column for column in experiment["columns"] if column["metric"] in measured]
    found = [by_variant(records, column["metric"]) for column in columns]
    bounds = [[by_variant(records, column["metric"] + bound) for bound in (LOW, HIGH)] for column in columns]
    trained = any(record.steps for record in records)
    costs = ("parameters", "steps", "training seconds") if trained else ()
    rows = []
    for variant, title in experiment["variants"].items():
        own = [record for record in records if record.variant == variant]
        if not own:
            continue
        cells = [
            format_runs(values.get(variant, []), column["percent"], _interval(column), *(own.get(variant, []) for own in interval))
            for column, values, interval in zip(columns, found, bounds, strict=True)
        ]
        runs = {record.seed: record for record in own}.values()
        if trained:
            seconds = sum(record.seconds for record in runs) / len(runs)
            cells += [_common(record.params for record in runs), _common(record.steps for record in runs), f"{seconds:.0f}"]
        rows.append([title, *cells, str(len(runs))])
    header = ["variant", *map(_heading, columns), *costs, "runs"]
    if len(rows) == 1 and len(columns) > MAX_COLUMNS_OF_ONE:
        return table(["", rows[0][0]], zip(header[1:], rows[0][1:], strict=True))
    return table(header, rows)


def _heading(column: Mapping[str, Any]) -> str:
    """Return the heading of a column: what is measured, its unit, and what the interval is if it is no standard error."""
    title = f"{column['title']} (%)" if column["percent"] else column["title"]
    return f"{title}, {HEADINGS[_interval(column)]}" if _interval(column) in HEADINGS else title


def _interval(column: Mapping[str, Any]) -> str:
    """Return how the spread of a column is written; files from before there was a choice have the standard error."""
    return column.get("interval", "standard_error")


def _common(counts: Iterable[int]) -> str:
    """Write a number that all runs share, or its range."""
    found = sorted(set(counts))
    return f"{found[0]:,}" if len(found) == 1 else f"{found[0]:,}–{found[-1]:,}"


def _tuning_table(experiment: dict[str, Any]) -> str:
    """Return the validation values of all tuning runs; the chosen settings are bold."""
    tuning = experiment["tuning"]
    rows = []
    for run in tuning["runs"]:
        setting = ", ".join(f"{option.rsplit('.', 1)[-1]} {value}" for option, value in run["setting"].items())
        if run["chosen"]:
            setting = f"**{setting}**"
        rows.append([experiment["variants"].get(run["variant"], run["variant"]), setting, _number(run["value"], False)])
    heading = f"Tuning (best `{tuning['metric']}` in {tuning['steps']} steps, one seed; bold: chosen)"
    return f"{heading}:\n\n" + table(["variant", "setting", "validation"], rows, left=2)
