"""Figures of F-DPMSolver's experiments."""

import re
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from benchmarks.figures import curve
from benchmarks.results import Record
from callbacks.sampler_figures import curve_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def calls_figure(
    records: Sequence[Record], titles: Mapping[str, str], *, panels: Mapping[str, str], levels: Mapping[str, str]
) -> "Figure":
    """Draw metrics against network calls, a line a sampler, mean over seeds.

    Args:
        records: what was measured, as ``test/{row}/nfe_<calls>/<metric>``.
        titles: titles of the samplers by name.
        panels: metric of each panel by its title.
        levels: metric that is a level line of a panel, by the panel's title.
    """
    values: dict[str, dict[str, dict[int, float]]] = {}
    for panel, metric in panels.items():
        pattern = re.compile(rf"test/\{{row\}}/nfe_(\d+)/{re.escape(metric)}")
        values[panel] = {}
        for name, title in titles.items():
            found: dict[int, list[float]] = {}
            for record in records:
                if record.variant == name and (match := pattern.fullmatch(record.metric)):
                    found.setdefault(int(match[1]), []).append(record.value)
            if found:
                values[panel][title] = {calls: fmean(numbers) for calls, numbers in found.items()}
    level = {panel: [record.value for record in records if record.metric == metric] for panel, metric in levels.items()}
    return curve_figure(values, {panel: fmean(numbers) for panel, numbers in level.items() if numbers})


def error_figure(records: Sequence[Record], titles: Mapping[str, str]) -> "Figure":
    """Draw the error against network calls, a line a sampler, mean over seeds."""
    curves = {title: curve(records, name, "rmse") for name, title in titles.items()}
    means = {title: {calls: point.mean for calls, point in points.items()} for title, points in curves.items() if points}
    return curve_figure({"RMSE to the exact flow": means})


def signed_error_figure(records: Sequence[Record], titles: Mapping[str, str]) -> "Figure":
    """Draw the errors of F-DDIM against those of DDIM, computed here: a panel for each number of steps."""
    from matplotlib.figure import Figure

    from benchmarks.calculations.sampler_errors import SIGN_CALLS, signed_errors
    from callbacks.figure_style import PALETTE

    figure = Figure(figsize=(2.9 * len(SIGN_CALLS), 3.1))
    for axes, calls in zip(figure.subplots(1, len(SIGN_CALLS)), SIGN_CALLS, strict=True):
        ddim, f_dpm = (signed_errors(name, 1, calls).flatten().numpy() for name in ("ddim", "f_dpm"))
        limit = 1.05 * max(abs(ddim).max(), abs(f_dpm).max())
        axes.plot([-limit, limit], [limit, -limit], color="0.6", linewidth=1)
        axes.plot(ddim, f_dpm, linestyle="none", marker=".", markersize=3, color=PALETTE[0])
        axes.set(xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal", title=f"{calls} steps", xlabel="error of DDIM")
    figure.axes[0].set_ylabel("error of F-DDIM")
    return figure
