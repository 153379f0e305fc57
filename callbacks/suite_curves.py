"""How far a model carries beyond what it was trained on: a test metric on every test set, against the iterations spent."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from callbacks.figure_style import figure_style
from callbacks.figures import publish_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Curves = dict[str, dict[int, float]]


@runtime_checkable
class Iterates(Protocol):
    """A module that is tested after ``eval_horizon`` iterations, and after others that metrics name with ``_at_<k>``."""

    eval_horizon: int


class SuiteCurves(Callback):
    """Draw ``test/<metric>`` and ``test/<suite>/<metric>`` against the number of iterations, one line a test set.

    The figure is ``suites_test``.

    Args:
        metric: a share, as it is called behind ``test/``, such as ``solved``.

    Raises:
        ValueError: if the module has no ``eval_horizon``, or a test measured no such metric.
    """

    def __init__(self, metric: str = "solved") -> None:
        self.metric = metric

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if not isinstance(pl_module, Iterates):
            raise ValueError(
                f"SuiteCurves needs a module with eval_horizon, which {type(pl_module).__name__} has not: leave the callback out"
            )

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.is_global_zero:
            return
        assert isinstance(pl_module, Iterates)
        curves = suite_curves(trainer.callback_metrics, self.metric, pl_module.eval_horizon)
        if not curves:
            known = ", ".join(sorted(trainer.callback_metrics))
            raise ValueError(f"SuiteCurves found no metric test/{self.metric}; the test measured: {known}")
        with figure_style():
            publish_figure(trainer, suite_figure(curves, self.metric), "suites_test")


def suite_curves(metrics: Mapping[str, Tensor], metric: str, plain_at: int) -> Curves:
    """Return the values of a metric by test set, the main one called ``trained on``, and number of iterations.

    Args:
        metrics: all metrics of a test.
        metric: name of the metric behind ``test/`` or ``test/<suite>/``.
        plain_at: iterations of the metric without ``_at_<k>``.
    """
    pattern = re.compile(rf"test/(?:(?P<suite>[^/]+)/)?{re.escape(metric)}(?:_at_(?P<k>\d+))?")
    curves: Curves = {}
    for name, value in metrics.items():
        if match := pattern.fullmatch(name):
            curves.setdefault(match["suite"] or "trained on", {})[int(match["k"] or plain_at)] = float(value)
    return {suite: dict(sorted(points.items())) for suite, points in curves.items()}


def suite_figure(curves: Curves, metric: str) -> "Figure":
    """Draw one line a test set."""
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    axes = figure.subplots()
    for suite, points in curves.items():
        axes.plot(list(points), [100 * value for value in points.values()], marker="o", label=suite)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.set(xlabel="iterations K at test time", ylabel=f"{metric} (%)", ylim=(-2, 102))
    axes.legend(title="test set")
    return figure
