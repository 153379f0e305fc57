from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor
from torch.utils.data import DataLoader

from callbacks.sampler_comparison import DiffusionCurves, DiffusionSheet
from callbacks.sampler_figures import curve_figure, sheet_figure


class Maker(LightningModule):
    """Images as bright as the number of calls says."""

    samplers, nfe = ["first", "second"], [4, 8]

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[list[int], str | None, int | None]] = []

    def sample(self, seed_B: Tensor, sampler: str | None = None, nfe: int | None = None) -> Tensor:
        self.calls.append((seed_B.tolist(), sampler, nfe))
        return torch.full((len(seed_B), 1, 4, 4), 0.1 * (nfe or 0))

    def test_step(self, batch: Tensor, batch_idx: int) -> None:
        self.log_dict({f"test/{name}/nfe_{nfe}/rmse_to_reference": 1 / nfe for name in self.samplers for nfe in self.nfe})
        self.log("test/reference/mmd", 0.5)


def ran(folder: Path, *callbacks: Any) -> Maker:
    maker = Maker()
    settings: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(default_root_dir=folder, accelerator="cpu", callbacks=list(callbacks), **settings)
    trainer.test(maker, DataLoader(torch.zeros(2, 1)), verbose=False)  # type: ignore[arg-type]
    return maker


def test_curves_leave_out_what_a_logarithm_cannot_show():
    values = {"error": {"a": {8: 0.5, 4: 2.0}, "b": {4: -1.0, 8: 0.25}}, "distance": {"a": {4: 3.0}}}
    left, right = curve_figure(values, {"distance": 2.0}).axes
    lines = {line.get_label(): line for line in left.lines}
    assert np.allclose(lines["a"].get_xydata(), [[4, 2], [8, 0.5]])
    assert np.allclose(lines["b"].get_xydata(), [[8, 0.25]])
    assert (left.get_yscale(), left.get_ylabel()) == ("log", "error")
    assert [text.get_text() for text in left.get_xticklabels()] == ["4", "8"]
    assert np.allclose(right.lines[-1].get_ydata(), 2.0)


def test_many_samplers_are_told_apart():
    figure = curve_figure({"error": {str(number): {4: 1.0 + number} for number in range(15)}})
    styles = {(line.get_color(), line.get_linestyle()) for line in figure.axes[0].lines}
    assert len(styles) == 15
    assert len(figure.legends[0].get_texts()) == 15


def test_a_sheet_has_a_row_a_sampler():
    images = [[torch.full((2, 1, 3, 3), value) for value in (-1.0, 1.0)], [torch.zeros(2, 1, 3, 3)] * 2]
    figure = sheet_figure(images, ["x", "y"], ["4 calls", "8 calls"])
    cells = figure.axes
    assert [axes.get_title() for axes in cells] == ["4 calls", "8 calls", "", ""]
    assert [axes.get_ylabel() for axes in cells] == ["x", "", "y", ""]
    assert [axes.images[0].get_array().mean() for axes in cells] == [0, 1, 0.5, 0.5]
    assert cells[0].images[0].get_array().shape == (3, 6)
    scatter = sheet_figure([[torch.tensor([[0.5, -0.5]])]], ["x"], ["4 calls"]).axes[0].collections[0]
    assert np.allclose(scatter.get_offsets(), [[0.5, -0.5]])


def test_the_figures_of_a_test(tmp_path: Path):
    maker = ran(tmp_path, DiffusionCurves(), DiffusionSheet(samples=2, seed=5))
    assert maker.calls == [([5, 6], name, nfe) for name in ("first", "second") for nfe in (4, 8)]
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == ["sampler_sheet_0.png", "samplers_0.png"]


def test_without_values_there_is_no_figure(tmp_path: Path):
    trainer: Any = SimpleNamespace(callback_metrics={}, is_global_zero=True, default_root_dir=tmp_path)
    DiffusionCurves().on_test_end(trainer, Maker())
    assert not list(tmp_path.iterdir())


def test_bad_input_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="cannot be drawn"):
        sheet_figure([[torch.zeros(1, 4, 8, 8)]], ["x"], ["4 calls"])
    with pytest.raises(ValueError, match="got 0"):
        DiffusionSheet(samples=0)
    for callback in (DiffusionCurves(), DiffusionSheet()):
        with pytest.raises(ValueError, match="needs a module with samplers, nfe and sample"):
            callback.setup(None, LightningModule(), "test")  # type: ignore[arg-type]
