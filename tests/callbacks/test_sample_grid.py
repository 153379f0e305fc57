from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader

from callbacks.diffusion_figures import decile_figure, sample_figure
from callbacks.sample_grid import SampleGrid, TimeDecileFigure


class Maker(LightningModule):
    """Images as bright as their class, a pixel as bright as the seed; a loss and active experts in tenths of the time."""

    num_classes, target = 3, 4.0

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[list[int], list[int]]] = []

    def sample(self, label_B: Tensor, seed_B: Tensor) -> Tensor:
        self.calls.append((label_B.tolist(), seed_B.tolist()))
        return (label_B.float() - 1).view(-1, 1, 1, 1).expand(-1, 1, 4, 4)

    def test_step(self, batch: Tensor, batch_idx: int) -> None:
        self.log_dict({f"test/loss_decile{place}": float(place) for place in range(10)})


def ran(folder: Path, *callbacks: Any) -> Maker:
    maker = Maker()
    trainer = Trainer(
        default_root_dir=folder,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=list(callbacks),
    )
    trainer.test(maker, DataLoader(torch.zeros(2, 1)), verbose=False)  # type: ignore[arg-type]
    return maker


def test_a_row_a_class():
    images = torch.zeros(2, 3, 1, 4, 5)
    images[1, 2] = 1.0
    images[0, 0] = -3.0
    figure = sample_figure(images)
    sheet = figure.axes[0].images[0].get_array()
    assert sheet.shape == (9, 17)
    assert np.allclose(sheet[5:, 12:], 1)
    assert np.allclose(sheet[:4, :5], 0), "what is darker than black is black"
    assert np.allclose(sheet[:4, 6:11], 0.5)
    assert np.allclose(sheet[4], 1), "a white line between"
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["0", "1"]
    assert sample_figure(torch.zeros(1, 2, 3, 4, 4)).axes[0].images[0].get_array().shape == (4, 9, 3)


def test_values_over_time():
    left, right = decile_figure({"loss": range(10), "active": [3.0] * 10}, {"active": 4.0}).axes
    assert np.allclose(left.lines[0].get_xydata()[3], [0.35, 3])
    assert len(left.lines) == 1
    assert np.allclose(right.lines[1].get_ydata(), 4)


def test_the_figures_of_a_test(tmp_path: Path):
    maker = ran(tmp_path, SampleGrid(samples=2, seed=5), TimeDecileFigure())
    assert maker.calls == [([0, 0, 1, 1, 2, 2], [5, 6] * 3)]
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == ["samples_0.png", "time_deciles_0.png"]
    assert np.asarray(Image.open(tmp_path / "figures" / "samples_0.png")).std() > 10
    assert ran(tmp_path, SampleGrid(samples=1, classes=2)).calls == [([0, 1], [0, 0])]


def test_without_values_there_is_no_figure(tmp_path: Path):
    trainer: Any = SimpleNamespace(callback_metrics={}, is_global_zero=True, default_root_dir=tmp_path)
    TimeDecileFigure().on_test_end(trainer, Maker())
    assert not list(tmp_path.iterdir())


def test_bad_input_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="4 channels cannot be drawn"):
        sample_figure(torch.zeros(1, 1, 4, 8, 8))
    with pytest.raises(ValueError, match="samples=0"):
        SampleGrid(samples=0)
    trainer = Trainer(default_root_dir=tmp_path, accelerator="cpu", logger=False, callbacks=[SampleGrid()])
    with pytest.raises(ValueError, match="needs a module with sample"):
        SampleGrid().setup(trainer, LightningModule(), "test")
