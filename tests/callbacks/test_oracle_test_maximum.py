from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torch_geometric.data import Data
from torchmetrics.classification import MulticlassAccuracy

from callbacks.oracle_test_maximum import OracleTestMaximum

NODES = 20
VALIDATION, TEST = [0.5, 0.6, 0.6], [0.9, 0.7, 0.8]


def graph(test_nodes: int = 10) -> Data:
    """Ten nodes to validate and ten to test, all of class 0."""
    at = torch.arange(NODES)
    masks = {"val_mask": at < 10, "test_mask": (at >= 10) & (at < 10 + test_nodes)}
    return Data(y=torch.zeros(NODES, dtype=torch.long), edge_index=torch.zeros(2, 0, dtype=torch.long), num_nodes=NODES, **masks)


class Scripted(LightningModule):
    """Names as many nodes rightly in each epoch as a script says."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.accuracy = nn.Parameter(torch.ones(())), MulticlassAccuracy(2, average="micro")
        self.register_buffer("epoch", torch.tensor(-1))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.weight**2

    def validation_step(self, batch: Data, batch_idx: int) -> dict[str, Tensor]:
        self.epoch = torch.tensor(self.current_epoch)  # type: ignore[assignment]
        right = torch.zeros(NODES)
        right[: round(10 * VALIDATION[self.current_epoch])] = 1
        right[10 : 10 + round(10 * TEST[self.current_epoch])] = 1
        probabilities = torch.stack([right, 1 - right], dim=1)
        self.accuracy.update(probabilities[batch.val_mask], batch.y[batch.val_mask])
        self.log("val/accuracy", self.accuracy, batch_size=1)
        return {"probabilities": probabilities}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def run(
    folder: Path, epochs: int = 3, resume: Any = None, model: LightningModule | None = None, data: Data | None = None
) -> Trainer:
    best = ModelCheckpoint(folder, filename="best", monitor="val/accuracy", mode="max", save_last=True)
    options: Any = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
    trainer = Trainer(
        max_epochs=epochs,
        callbacks=[OracleTestMaximum(), best],
        accelerator="cpu",
        default_root_dir=folder,
        log_every_n_steps=1,
        **options,
    )
    loader: Any = DataLoader([data or graph()], batch_size=None)  # type: ignore[arg-type]
    trainer.fit(model or Scripted(), loader, loader, ckpt_path=resume)
    return trainer


def test_the_first_best_validation_is_reported(tmp_path: Path):
    trainer = run(tmp_path)
    checkpoint = torch.load(tmp_path / "best.ckpt", weights_only=True)
    assert checkpoint["state_dict"]["epoch"] == 1, "the first epoch that attains the maximum is kept"
    assert trainer.callback_metrics["oracle/test_max"].item() == pytest.approx(0.9)
    assert trainer.callback_metrics["oracle/test_at_best_val"].item() == pytest.approx(0.7)


def test_it_survives_a_restart(tmp_path: Path):
    run(tmp_path, epochs=1)
    trainer = run(tmp_path, epochs=3, resume=tmp_path / "last.ckpt")
    assert trainer.callback_metrics["oracle/test_max"].item() == pytest.approx(0.9), "of the epoch before the restart"
    assert trainer.callback_metrics["oracle/test_at_best_val"].item() == pytest.approx(0.7)


def test_ranks_are_summed():
    """Two processes with unequal shares: 1 of 2 and 6 of 8 right in the test."""

    class OtherRank:
        def reduce(self, counts: Tensor, reduce_op: str) -> Tensor:
            assert reduce_op == "sum"
            return counts + torch.tensor([4, 5, 6, 8])

    class Model:
        logged: dict[str, float]

        def log_dict(self, values: dict[str, float], **_: Any) -> None:
            self.logged = values

    at = torch.arange(NODES)
    share = Data(y=torch.zeros(NODES, dtype=torch.long), val_mask=at < 5, test_mask=(at == 10) | (at == 11))
    right = torch.zeros(NODES)
    right[:2] = right[10] = 1
    trainer: Any = type("T", (), {"sanity_checking": False, "strategy": OtherRank()})()
    model: Any = Model()
    oracle = OracleTestMaximum()
    oracle.on_validation_batch_end(trainer, model, {"probabilities": torch.stack([right, 1 - right], dim=1)}, share, 0)
    oracle.on_validation_epoch_end(trainer, model)
    assert model.logged == pytest.approx({"oracle/test_max": 0.7, "oracle/test_at_best_val": 0.7})
    assert oracle.best_validation == pytest.approx(0.6)


def test_what_it_cannot_measure_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="10 validation and 0 test nodes"):
        run(tmp_path, data=graph(test_nodes=0))

    class Silent(Scripted):
        def validation_step(self, batch: Data, batch_idx: int) -> None:  # type: ignore[override]
            super().validation_step(batch, batch_idx)

    with pytest.raises(ValueError, match="needs probabilities from validation_step, which Silent"):
        run(tmp_path, model=Silent())
