import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from small_graphs import WholeGraph, quiet_trainer
from torch import Tensor, nn
from torch_geometric.data import Data

from callbacks.figures import rasterise
from callbacks.gauge_figures import alignment_figure, parallel_figure, phase_figure
from callbacks.gauge_monitor import BINS, SICMonitor

EDGES = torch.tensor([[0, 1, 0, 1, 2, 1, 2], [0, 0, 1, 1, 1, 2, 2]])
"""The path 0 - 1 - 2 with self-loops; its links are 1->0, 0->1, 2->1, 1->2."""

GRAPH = Data(edge_index=EDGES, y=torch.tensor([0, 0, 1]), num_nodes=3)
ALIGNMENT = torch.tensor([0.99, 0.99, -0.99, -0.5])


class Layers(LightningModule):
    """Tells of two layers; the second turns everything by a phase that grows."""

    def __init__(self, phase: float = 3.0) -> None:
        super().__init__()
        self.weight, self.phase = nn.Parameter(torch.ones(())), phase

    def diagnose(self, batch: Data) -> list[dict[str, Tensor]]:
        assert not self.training
        first = {
            "parallel_fraction": torch.tensor([0.1, 0.2, 0.3, 0.4]) + self.current_epoch,
            "alignment": ALIGNMENT,
            "angle": torch.tensor([0.1, -0.1, 3.1, -3.1]),
            "phase": self.phase * torch.tensor([1.0, -1.0, 1.5, -1.5]),
            "eta": torch.tensor(0.9),
            "gate_share": torch.tensor(0.5),
            "dirichlet_energy": torch.tensor(2.0),
        }
        return [first, {**first, "parallel_fraction": torch.zeros(4), "eta": torch.tensor(0.0)}]

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.weight**2

    def validation_step(self, batch: Any, batch_idx: int) -> None: ...

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def run(folder: Path, epochs: int, every: int = 1, model: Layers | None = None) -> tuple[Trainer, SICMonitor]:
    monitor = SICMonitor(every)
    trainer = quiet_trainer(folder, epochs, callbacks=[monitor])
    trainer.fit(model or Layers(), WholeGraph(GRAPH))
    return trainer, monitor


def test_layers_are_logged(tmp_path: Path):
    found = run(tmp_path, 3)[0].callback_metrics
    assert found["sic/parallel_fraction_0"].item() == pytest.approx(2.25)
    assert found["sic/parallel_fraction_1"].item() == 0
    assert [found[f"sic/eta_{layer}"].item() for layer in (0, 1)] == pytest.approx([0.9, 0])
    assert found["sic/gate_share_0"].item() == 0.5
    assert found["sic/dirichlet_energy_1"].item() == 2
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == [
        "alignment_3.png",
        "parallel_fraction_3.png",
        "phases_3.png",
    ]


def test_it_looks_at_every_so_many_epochs(tmp_path: Path):
    monitor = run(tmp_path, 6, every=2)[1]
    assert sorted(monitor._history) == [0, 2, 4]
    assert [row[0]["parallel_fraction"] for row in monitor._history.values()] == pytest.approx([0.25, 2.25, 4.25])
    resumed = SICMonitor()
    torch.save(monitor.state_dict(), tmp_path / "state")
    resumed.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
    assert resumed._history == monitor._history
    assert all(torch.equal(a[name], b[name]) for a, b in zip(resumed._histograms, monitor._histograms, strict=True) for name in a)


def test_links_inside_a_class_and_between_classes_are_apart(tmp_path: Path):
    counts = run(tmp_path, 1)[1]._histograms[0]
    within, between = counts["within"], counts["between"]
    assert (within[-1], within.sum()) == (2, 2)
    assert (between[0], between[math.floor(0.25 * BINS)], between.sum()) == (1, 1, 2)
    at = counts["phase_between"].nonzero()[:, 0].tolist()
    wrapped = sorted([4.5 - 2 * math.pi, 2 * math.pi - 4.5])
    assert at == [math.floor((phase + math.pi) / (2 * math.pi) * BINS) for phase in wrapped], "phases are wrapped to the circle"
    assert counts["phase_within"].sum() == 2
    assert counts["angle_within"].nonzero()[:, 0].tolist() == [BINS // 2 - 1, BINS // 2]
    assert counts["angle_between"].nonzero()[:, 0].tolist() == [0, BINS - 1]


def test_without_phases_there_is_no_picture_of_them(tmp_path: Path):
    run(tmp_path, 1, model=Layers(phase=0.0))
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == ["alignment_1.png", "parallel_fraction_1.png"]


def test_the_figures_show_the_numbers():
    history = {
        epoch: [{"parallel_fraction": epoch / 10, "eta": 1.0}, {"parallel_fraction": 0.5, "eta": 0.0}] for epoch in (4, 0, 2)
    }
    left, right = parallel_figure(history).axes
    assert np.allclose(left.lines[0].get_xydata(), [[0, 0], [2, 0.2], [4, 0.4]])
    assert np.allclose(right.lines[1].get_ydata(), 0)

    counts = torch.zeros(BINS)
    counts[0] = 4
    histograms = [
        {
            "within": counts,
            "between": counts.flip(0),
            "phase_within": counts,
            "phase_between": counts,
            "angle_within": counts,
            "angle_between": counts,
            "phases_differ": torch.tensor(True),
        }
    ] * 3
    figure = alignment_figure(histograms)
    assert len(figure.axes) == 3
    patch: Any = figure.axes[2].patches[0]
    values, edges, _ = patch.get_data()
    assert values[0] * (edges[1] - edges[0]) == pytest.approx(1), "a density"
    polar: Any = phase_figure(histograms)
    assert polar is not None
    assert [len(axes.patches) for axes in polar.axes] == [2 * BINS] * 2
    assert rasterise(polar).std() > 0


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="got 0"):
        SICMonitor(0)
    with pytest.raises(ValueError, match="leave the callback out"):
        SICMonitor().setup(Trainer(logger=False), LightningModule(), "fit")
