from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader

from callbacks.representation_figures import CURVES, spectrum_figure
from callbacks.representation_monitor import RepresentationMonitor, dead_features, effective_rank, srank
from lightning_modules.r2r2.effective_rank import effective_rank as measured_rank

DIM = 6


class Encoder(LightningModule):
    """Features that are the states times a weight, which shrinks the second half as training goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(DIM))
        self.looked_at: list[Tensor] = []

    def representation(self, obs: Tensor) -> Tensor:
        self.looked_at.append(obs)
        return obs * self.weight

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.weight[DIM // 2 :].square().sum()

    def validation_step(self, batch: Any, batch_idx: int) -> None: ...

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Held(LightningDataModule):
    """States that are held out."""

    def __init__(self, states: Tensor) -> None:
        super().__init__()
        self.states, self.val_set = states, SimpleNamespace(obs=states)

    def train_dataloader(self) -> DataLoader:
        return DataLoader([{"obs": self.states[:1]}] * 2, batch_size=None)

    def val_dataloader(self) -> DataLoader:
        return DataLoader([torch.arange(2)], batch_size=None)


class Replay(Held):
    """States that an agent saw."""

    env = "gym:Fake-v0"

    def newest_observations(self, count: int, device: torch.device) -> Tensor:
        return self.states[-count:].to(device)


def states(count: int = 20) -> Tensor:
    return torch.randn(count, DIM, generator=torch.Generator().manual_seed(0)) + 0.5


def trained(folder: Path, data: Held, epochs: int = 3, **settings: Any) -> tuple[Trainer, Encoder, RepresentationMonitor]:
    monitor, model = RepresentationMonitor(**settings), Encoder()
    options: Any = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)
    trainer = Trainer(default_root_dir=folder, max_epochs=epochs, accelerator="cpu", callbacks=[monitor], **options)
    trainer.fit(model, data)
    return trainer, model, monitor


def test_held_out_states_are_measured(tmp_path: Path):
    trainer, model, _ = trained(tmp_path, Held(states()), states=12)
    assert [len(seen) for seen in model.looked_at] == [12] * 3, "and not at the sanity check"
    found = trainer.callback_metrics
    z = (states()[:12] * model.weight).detach()
    assert found["repr/effective_rank"].item() == pytest.approx(measured_rank(z).item(), rel=1e-5)
    assert found["repr/effective_rank_centered"].item() == pytest.approx(measured_rank(z, center=True).item(), rel=1e-5)
    assert {"repr/srank", "repr/dead_features"} <= set(found)
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["spectrum_6.png"]


def test_a_replay_shows_its_newest_states(tmp_path: Path):
    model = trained(tmp_path, Replay(states()), states=7)[1]
    assert torch.equal(model.looked_at[0], states()[-7:])


def test_it_waits_for_its_steps(tmp_path: Path):
    monitor = trained(tmp_path, Replay(states()), epochs=6, every_env_steps=5)[2]
    assert sorted(monitor._spectra) == [2, 6, 10], "validations are at 2, 4, ... 12; the first at or after 0, 5 and 10 count"
    resumed = RepresentationMonitor(every_env_steps=5)
    resumed.load_state_dict(monitor.state_dict())
    assert resumed.state_dict() == monitor.state_dict()


def test_right_numbers():
    assert effective_rank(torch.tensor([2.0, 1.0, 1.0])).item() == pytest.approx(2**1.5)
    assert effective_rank(torch.zeros(3)).item() == 0
    sigma = torch.tensor([90.0, 8.0, 1.5, 0.5])
    assert [srank(sigma).item(), srank(sigma, 0.95).item(), srank(sigma, 0.9).item()] == [3, 2, 1]
    assert srank(torch.zeros(3)).item() == 0
    features = states(50) * torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0, 1e-4])
    features[:, 4] = 1.0
    for scale in (1.0, 1000.0):
        assert dead_features(scale * features).item() == pytest.approx(2 / 6)


def test_bad_features_are_named(tmp_path: Path):
    with pytest.raises(ValueError, match="features of gym:Fake-v0 at step 2 hold NaN"):
        trained(tmp_path, Replay(states() * torch.nan))


def test_bad_input_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="states=0"):
        RepresentationMonitor(states=0)
    with pytest.raises(ValueError, match="leave the callback out"):
        RepresentationMonitor().setup(Trainer(logger=False), LightningModule(), "fit")

    blind = Held(states())
    blind.val_set = None  # type: ignore[assignment]
    with pytest.raises(ValueError, match="finds no states"):
        trained(tmp_path, blind)


def test_the_figure_shows_shares_of_the_largest():
    spectra = {step: (torch.tensor([4.0, 2.0, 1.0]) / step, torch.tensor([3.0, 1.5, 0.3])) for step in range(1, 101)}
    figure = spectrum_figure(spectra)
    left, right, *_ = figure.axes
    assert len(left.lines) == len(right.lines) == CURVES
    assert left.lines[-1].get_ydata() == pytest.approx([1, 0.5, 0.25])
    assert right.lines[0].get_ydata() == pytest.approx([1, 0.5, 0.1])
    assert left.get_yscale() == "log"
