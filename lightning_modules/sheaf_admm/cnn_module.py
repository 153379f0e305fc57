"""LightningModule of the convolutional baselines on the images that the agents see in patches."""

from collections.abc import Sequence
from typing import Any, Literal

from lightning import LightningModule
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torchmetrics import MeanMetric

from lightning_modules.optimizer import adamw
from lightning_modules.sheaf_admm.cnn import PatchCNN, SizeInvariantCNN
from lightning_modules.sheaf_admm.metrics import CellAccuracy
from lightning_modules.sheaf_admm.task import Batch


class PatchCNNModule(LightningModule):
    """Train and test a convolutional network on whole images: the baseline of agents that see a patch each.

    It reads ``image`` and ``label`` of a batch; agents that are marked as dropped are, to it, the black pixels that they left.

    Args:
        network: "cnn" pools its features to a fixed grid, see ``PatchCNN``; "size_invariant" takes their maximum over all
            positions, see ``SizeInvariantCNN``.
        channels: channels of the two convolutions.
        hidden: units of the hidden dense layer.
        pool: cells per side of the pooled features of "cnn".
        num_classes: number of classes.
        test_suites: names of further test sets, in the order of their loaders; None takes them from the data.
        lr: learning rate of AdamW.
        weight_decay: its weight decay.
        warmup_steps: steps over which the learning rate rises linearly to ``lr``, where it stays.

    Raises:
        ValueError: if the network is unknown.

    Source: Sheaf-ADMM (arXiv 2605.31005) compares with a convolutional network whose details are not published; both are ours.
    """

    def __init__(
        self,
        network: Literal["cnn", "size_invariant"] = "cnn",
        channels: tuple[int, int] = (32, 64),
        hidden: int = 128,
        pool: int = 7,
        num_classes: int = 10,
        test_suites: Sequence[str] | None = None,
        lr: float = 1e-3,
        weight_decay: float = 1e-7,
        warmup_steps: int = 200,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        if network not in ("cnn", "size_invariant"):
            raise ValueError(f"network must be 'cnn' or 'size_invariant', not {network!r}")
        self.network: nn.Module = SizeInvariantCNN(channels, hidden, num_classes)
        if network == "cnn":
            self.network = PatchCNN(channels, hidden, pool, num_classes)
        self.lr, self.weight_decay, self.warmup_steps = lr, weight_decay, warmup_steps
        self.val_loss, self.val_accuracy = MeanMetric(), CellAccuracy()
        self.test_prefixes = ["test/", *(f"test/{suite}/" for suite in test_suites or ())]
        self.test_losses = nn.ModuleList(MeanMetric() for _ in self.test_prefixes)
        self.test_accuracies = nn.ModuleList(CellAccuracy() for _ in self.test_prefixes)

    def forward(self, batch: Batch) -> Tensor:
        """Return class logits, ``[B, classes]``."""
        return self.network(batch["image"])

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        loss = nn.functional.cross_entropy(self(batch), batch["label"])
        self.log("train/loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self._evaluate(batch, "val/", self.val_loss, self.val_accuracy)

    def test_step(self, batch: Batch, batch_idx: int, dataloader_idx: int = 0) -> None:
        prefix = self.test_prefixes[dataloader_idx]
        self._evaluate(batch, prefix, self.test_losses[dataloader_idx], self.test_accuracies[dataloader_idx])

    def predict_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return the classes, ``[B]``."""
        return self(batch).argmax(dim=-1)

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        return adamw(self.parameters(), self.lr, self.weight_decay, warmup_steps=self.warmup_steps)

    def _evaluate(self, batch: Batch, prefix: str, loss: Any, accuracy: Any) -> None:
        """Update and log the loss and the share of images named rightly."""
        logits = self(batch)
        loss.update(nn.functional.cross_entropy(logits, batch["label"]), weight=len(logits))
        accuracy.update(logits.argmax(dim=-1), batch["label"])
        self.log(f"{prefix}loss", loss, add_dataloader_idx=False)
        self.log(f"{prefix}accuracy", accuracy, add_dataloader_idx=False)
