from types import SimpleNamespace

import pytest
import torch
from lightning import LightningModule

from callbacks.suite_curves import SuiteCurves, suite_curves, suite_figure

METRICS = {
    "test/solved": torch.tensor(0.5),
    "test/solved_at_4": torch.tensor(0.25),
    "test/solved_at_64": torch.tensor(0.75),
    "test/2x/solved": torch.tensor(0.125),
    "test/2x/open_accuracy": torch.tensor(0.9),
    "test/intervention/kick/solved": torch.tensor(0.3),
    "val/solved": torch.tensor(1.0),
}


def test_metrics_are_sorted_by_test_set_and_iterations():
    assert suite_curves(METRICS, "solved", plain_at=16) == {"trained on": {4: 0.25, 16: 0.5, 64: 0.75}, "2x": {16: 0.125}}


def test_one_line_a_test_set_in_percent():
    (axes,) = suite_figure(suite_curves(METRICS, "solved", plain_at=16), "solved").axes
    lines = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines}
    assert lines == {"trained on": ([4, 16, 64], [25.0, 50.0, 75.0]), "2x": ([16], [12.5])}


class Agents(LightningModule):
    eval_horizon = 16


def test_the_figure_is_published(tmp_path):
    trainer = SimpleNamespace(
        is_global_zero=True, callback_metrics=METRICS, default_root_dir=tmp_path, global_step=7, lightning_module=None, loggers=[]
    )
    SuiteCurves().on_test_end(trainer, Agents())
    assert (tmp_path / "figures" / "suites_test_7.png").exists()
    with pytest.raises(ValueError, match="no metric test/accuracy; the test measured: test/2x/open_accuracy"):
        SuiteCurves("accuracy").on_test_end(trainer, Agents())


def test_a_module_without_iterations_is_refused():
    with pytest.raises(ValueError, match="LightningModule has not: leave the callback out"):
        SuiteCurves().setup(None, LightningModule(), "test")
