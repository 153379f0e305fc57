"""The smallest honest method: a regression with dropout, noise on the data, and metrics; the launcher's tests train it."""

import os
import signal
from typing import Any, Literal

import numpy as np
import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torchmetrics import MeanMetric

from datamodules.base import BatchKey, LeydenDataModule


class NoisyLine:
    def __init__(self, size: int, seed: int, noise: float) -> None:
        self.x = np.random.default_rng(seed).standard_normal((size, 3)).astype(np.float32)
        self.seed, self.noise = seed, noise

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, key: BatchKey) -> dict[str, Tensor]:
        noise = self.noise * key.generator(self.seed).standard_normal((len(key.indices), 3)).astype(np.float32)
        x = torch.from_numpy(self.x[key.indices] + noise)[key.rows]
        return {"x": x, "y": x.sum(1, keepdim=True)}


class ToyDataModule(LeydenDataModule):
    def __init__(
        self, batch_size: int = 8, size: int = 64, num_workers: int = 0, with_test: bool = True, max_epochs: int | None = None
    ):
        super().__init__(batch_size, num_workers=num_workers)
        if max_epochs is not None and max_epochs < 0:
            raise ValueError(f"max_epochs={max_epochs} is negative")
        self.size, self.with_test, self.max_epochs = size, with_test, max_epochs

    def setup(self, stage: str) -> None:
        if self.size < 0:
            raise ValueError(f"size={self.size} is negative: use a positive number of samples")
        self.train_set = NoisyLine(self.size, 1, 0.1)
        self.val_set = NoisyLine(21, 2, 0.0)
        self.test_set = NoisyLine(21, 3, 0.0) if self.with_test else None

    def model_arguments(self) -> dict[str, Any]:
        return {"in_features": 3}

    def trainer_defaults(self) -> dict[str, Any]:
        own = {} if self.max_epochs is None else {"max_epochs": self.max_epochs}
        return super().trainer_defaults() | own


class ToyModule(LightningModule):
    def __init__(self, in_features: int | None = None, lr: float = 0.01, dropout: float = 0.2, wanted_epochs: int | None = None):
        super().__init__()
        self.save_hyperparameters()
        assert in_features is not None
        self.net = nn.Sequential(nn.Linear(in_features, 8), nn.Dropout(dropout), nn.Tanh(), nn.Linear(8, 1))
        self.val_loss, self.test_loss = MeanMetric(), MeanMetric()

    def trainer_defaults(self) -> dict[str, Any]:
        return {} if self.hparams["wanted_epochs"] is None else {"max_epochs": self.hparams["wanted_epochs"]}

    def _loss(self, batch: dict[str, Tensor]) -> Tensor:
        return nn.functional.mse_loss(self.net(batch["x"]), batch["y"])

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        loss = self._loss(batch)
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        self.val_loss.update(self._loss(batch), len(batch["x"]))
        self.log("val/loss", self.val_loss)

    def test_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        self.test_loss.update(self._loss(batch), len(batch["x"]))
        self.log("test/loss", self.test_loss)

    def predict_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        return self.net(batch["x"])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.hparams["lr"])


class WithoutTraining(LightningModule):
    """A method that only measures."""

    def trainer_defaults(self) -> dict[str, Any]:
        return {"max_steps": 0}

    def test_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        self.log("test/mean", batch["y"].mean())

    def configure_optimizers(self) -> None:
        return None


class KillAt(Callback):
    """Kill the process without warning, as a power cut would, where ``KILL_AT="<step> <moment>"`` says."""

    def __init__(self) -> None:
        step, _, self.moment = os.environ.get("KILL_AT", "-1 ").partition(" ")
        self.step = int(step)

    def _kill(self, trainer: Trainer, moment: str) -> None:
        if moment == self.moment and trainer.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_before_optimizer_step(self, trainer: Trainer, *_: Any) -> None:
        self._kill(trainer, "before_optimizer_step")

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        self._kill(trainer, "batch_end")

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        self._kill(trainer, "batch_start")

    def on_validation_end(self, trainer: Trainer, *_: Any) -> None:
        self._kill(trainer, "validation_end")

    def on_train_epoch_start(self, trainer: Trainer, *_: Any) -> None:
        self._kill(trainer, "epoch_start")

    def on_save_checkpoint(self, trainer: Trainer, *_: Any) -> None:
        self._kill(trainer, "save_checkpoint")


class DivergeAt(Callback):
    """Change a weight on rank one only."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if trainer.global_step == self.step and trainer.global_rank == 1:
            list(pl_module.parameters())[2].data[0] += 1e-7


class KeepWeights(Callback):
    """Leave each rank's own weights in ``weights_<rank>.pt``."""

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        torch.save(pl_module.state_dict(), f"weights_{trainer.global_rank}.pt")


class SignalAt(Callback):
    """Send this process a signal during a step."""

    def __init__(self, step: int, number: int) -> None:
        self.step, self.number = step, number

    def on_before_optimizer_step(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_step == self.step:
            os.kill(os.getpid(), self.number)


class Choosy(Callback):
    """Takes one of two modes."""

    def __init__(self, mode: Literal["a", "b"] = "a") -> None:
        self.mode = mode
