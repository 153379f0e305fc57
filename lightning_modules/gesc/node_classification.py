"""What GESC and its baselines share: loss of the training nodes, metrics, optimiser, and what happens when numbers blow up."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, cast

import torch
from lightning import LightningModule
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torch_geometric.data import Data
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

from lightning_modules.gesc.post_process import Post, post_process
from lightning_modules.optimizer import adamw

SKIPPED_IN_A_ROW = 20
"""So many skipped steps end a run."""

_IGNORED = -1


class NodeClassification(LightningModule, ABC):
    r"""Train and test a classifier of the nodes of a graph; a subclass defines ``forward``, the logits of all nodes.

    A batch is a graph whose masks say which nodes belong to this process in each stage. The training loss of a step is

    .. math::
        \min\bigl(1, \tfrac{\text{epoch}+1}{\text{warmup}}\bigr)
        \Bigl( \text{loss\_scale} \cdot \operatorname{mean}_{i \in \text{train\_mask}} \mathrm{CE}_i + \text{penalty} \Bigr)

    where ``loss_scale`` of the batch makes the gradient, averaged over processes with unequal shares, that of one process.

    Models are selected and stopped by ``val/accuracy`` and ``val/loss``, which are of the model's own softmax. Test and prediction
    first post-process the probabilities, which reads the labels of ``labelled_mask`` only.

    A step whose loss or gradient is not finite changes nothing: neither parameters nor the optimiser's state. The decision is taken
    from the gradient after it was averaged, hence by all processes alike, and reads one number from the device in each step, which
    is an epoch where batches are whole graphs.

    Args:
        num_features: features of a node; None takes the data's own.
        num_classes: classes; None takes the data's own.
        complex_features: whether features are complex; None takes the data's own.
        test_suites: names of further test sets, in the order of their loaders; None takes them from the data.
        lr: learning rate of AdamW.
        weight_decay: its weight decay.
        min_lr_ratio: the learning rate falls along a cosine to this share of ``lr``, over ``trainer.max_steps`` steps if that is
            set and over ``trainer.max_epochs`` otherwise.
        warmup_epochs: epochs over which the loss rises linearly to its full weight; 0 has none.
        post: post-processing in test and prediction: "none", "cs" or "cs_lp", see ``post_process``.

    Raises:
        ValueError: if the data's sizes are missing, or ``post`` is unknown.
        RuntimeError: if 20 steps in a row were not finite.
    """

    def __init__(
        self,
        num_features: int | None = None,
        num_classes: int | None = None,
        complex_features: bool | None = None,
        test_suites: Sequence[str] | None = None,
        lr: float = 1e-3,
        weight_decay: float = 5e-4,
        min_lr_ratio: float = 0.1,
        warmup_epochs: int = 0,
        post: Post = "none",
    ) -> None:
        super().__init__()
        if num_features is None or num_classes is None:
            raise ValueError(f"{type(self).__name__} needs num_features and num_classes when its data do not tell them")
        if post not in ("none", "cs", "cs_lp"):
            raise ValueError(f"post={post!r} is unknown: use 'none', 'cs' or 'cs_lp'")
        self.save_hyperparameters()
        self.num_features, self.num_classes, self.complex_features = num_features, num_classes, bool(complex_features)
        self.lr, self.weight_decay, self.min_lr_ratio, self.warmup_epochs = lr, weight_decay, min_lr_ratio, warmup_epochs
        self.post: Post = post
        self.val_loss = MeanMetric()
        self.val_metrics = self._metrics("val/")
        self.test_prefixes = ["test/", *(f"test/{suite}/" for suite in test_suites or ())]
        self.test_metrics = nn.ModuleList(self._metrics(prefix) for prefix in self.test_prefixes)
        self.skipped_steps = self._skipped_in_a_row = 0

    @abstractmethod
    def forward(self, batch: Data) -> Tensor:
        """Return the logits of all nodes, ``[N, C]``."""

    def training_pass(self, batch: Data) -> tuple[Tensor, Tensor | None]:
        """Return the logits whose cross-entropy is trained, and a penalty to be added to the loss."""
        return self(batch), None

    def training_step(self, batch: Data, batch_idx: int) -> Tensor:
        logits_NC, penalty = self.training_pass(batch)
        cross_entropy = masked_cross_entropy(logits_NC, batch.y, batch.train_mask) * batch.get("loss_scale", 1.0)
        loss = cross_entropy if penalty is None else cross_entropy + penalty
        right_N = (logits_NC.argmax(dim=-1) == batch.y) & batch.train_mask
        accuracy = right_N.sum() / batch.train_mask.sum().clamp_min(1)
        self.log_dict({"train/accuracy": accuracy, "train/skipped_steps": float(self.skipped_steps)}, batch_size=1)
        if penalty is not None:
            self.log("train/penalty", penalty, batch_size=1)
        self.log("train/loss", loss, prog_bar=True, batch_size=1)
        # a loss that is not finite reaches every process as a gradient that is not
        poison = torch.where(loss.detach().isfinite(), 1.0, torch.nan)
        return loss * (poison * min(1.0, (self.current_epoch + 1) / max(self.warmup_epochs, 1)))

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Let a step whose gradient is not finite pass without effect.

        Raises:
            RuntimeError: if it is the 20th in a row.
        """
        norm = nn.utils.get_total_norm([parameter.grad for parameter in self.parameters() if parameter.grad is not None])
        if norm.isfinite():
            self._skipped_in_a_row = 0
            return
        self.skipped_steps += 1
        self._skipped_in_a_row += 1
        if self._skipped_in_a_row >= SKIPPED_IN_A_ROW:
            raise RuntimeError(
                f"the loss or the gradient of {SKIPPED_IN_A_ROW} steps in a row was not finite: "
                f"lr {optimizer.param_groups[0]['lr']:.3g}, gradient norm {norm.item()}, epoch {self.current_epoch}. "
                "Use a smaller lr or trainer.gradient_clip_val, and look at the features for extreme values"
            )
        for parameter in self.parameters():
            parameter.grad = None

    def validation_step(self, batch: Data, batch_idx: int) -> dict[str, Tensor]:
        """Update and log the validation metrics; return the model's own ``probabilities`` of all nodes, ``[N, C]``."""
        logits_NC = self(batch)
        self.val_loss.update(masked_cross_entropy(logits_NC, batch.y, batch.val_mask), batch.val_mask.sum())
        self.log("val/loss", self.val_loss, batch_size=1)
        self._measure(self.val_metrics, logits_NC, batch.y, batch.val_mask)
        return {"probabilities": logits_NC.softmax(dim=-1)}

    def test_step(self, batch: Data, batch_idx: int, dataloader_idx: int = 0) -> dict[str, Tensor]:
        """Update and log the test metrics; return the post-processed ``probabilities`` of all nodes, ``[N, C]``."""
        probabilities_NC = self._probabilities(batch)
        metrics = cast(MetricCollection, self.test_metrics[dataloader_idx])
        self._measure(metrics, probabilities_NC, batch.y, batch.test_mask)
        return {"probabilities": probabilities_NC}

    def predict_step(self, batch: Data, batch_idx: int, dataloader_idx: int = 0) -> dict[str, Any]:
        """Return the post-processed ``probabilities`` of all nodes, ``[N, C]``, and ``n_id`` ``[N]`` where nodes were sampled."""
        nodes = {"n_id": batch.n_id} if "n_id" in batch else {}
        return {"probabilities": self._probabilities(batch), **nodes}

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        return adamw(
            self.parameters(),
            self.lr,
            self.weight_decay,
            min_lr_ratio=self.min_lr_ratio,
            max_steps=self.trainer.max_steps,
            max_epochs=self.trainer.max_epochs,
        )

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["skipped_steps"] = [self.skipped_steps, self._skipped_in_a_row]

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.skipped_steps, self._skipped_in_a_row = checkpoint.get("skipped_steps", (0, 0))

    def in_precision(self, batch: Data) -> Data:
        """Return the graph in the precision of the parameters; Lightning converts plain tensors only."""
        real, complex_ = self.dtype, torch.complex128 if self.dtype == torch.float64 else torch.complex64
        if batch.x.dtype in (real, complex_):
            return batch

        def convert(values: Tensor) -> Tensor:
            return values.to(complex_) if values.is_complex() else values.to(real) if values.is_floating_point() else values

        return copy.copy(batch).apply(convert)

    def _probabilities(self, batch: Data) -> Tensor:
        labelled_N = batch.get("labelled_mask", batch.train_mask)
        return post_process(self(batch), batch.y, labelled_N, batch.edge_index, self.post)

    def _metrics(self, prefix: str) -> MetricCollection:
        settings: dict[str, Any] = {"num_classes": self.num_classes, "ignore_index": _IGNORED, "validate_args": False}
        accuracy, f1 = MulticlassAccuracy(average="micro", **settings), MulticlassF1Score(average="macro", **settings)
        return MetricCollection({"accuracy": accuracy, "f1": f1}, prefix=prefix)

    def _measure(self, metrics: MetricCollection, scores_NC: Tensor, y_N: Tensor, mask_N: Tensor) -> None:
        metrics.update(scores_NC.argmax(dim=-1), torch.where(mask_N, y_N, _IGNORED))
        self.log_dict(metrics, add_dataloader_idx=False, batch_size=1)


def masked_cross_entropy(logits_NC: Tensor, y_N: Tensor, mask_N: Tensor) -> Tensor:
    """Return the mean cross-entropy of the nodes of a mask, 0 if it is empty; a scalar."""
    total = nn.functional.cross_entropy(logits_NC, torch.where(mask_N, y_N, _IGNORED), ignore_index=_IGNORED, reduction="sum")
    return total / mask_N.sum().clamp_min(1)


def real_and_imaginary_parts(x_NF: Tensor) -> Tensor:
    """Return both parts of complex features beside each other, ``[N, 2F]``."""
    return torch.cat([x_NF.real, x_NF.imag], dim=-1)
