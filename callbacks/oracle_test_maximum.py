"""How much a table would gain by choosing the epoch on the test set: a number to look at, never to report as a result."""

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor


class OracleTestMaximum(Callback):
    """Follow the test accuracy at every validation of a whole graph, and log its maximum under a name that says what it is.

    **Never select, stop or tune by these numbers**: they read the labels of the test nodes. They exist because published programs
    do report the test maximum, so that a reader can see what that is worth. Logged are, in shares:

    - ``oracle/test_max``: the largest test accuracy of all epochs so far;
    - ``oracle/test_at_best_val``: the test accuracy at the first epoch with the largest validation accuracy, which is what an
      honest run reports when predictions are not post-processed.

    The probabilities are those that ``validation_step`` returns for all nodes, ``{"probabilities": [N, C]}``; the graph has ``y``,
    ``val_mask`` and ``test_mask``, on several ranks each its share.

    Raises:
        ValueError: if the validation returns no probabilities, or its graphs hold no validation or test nodes (sampled
            neighbourhoods hold those of one stage only).
    """

    def __init__(self) -> None:
        self.best_validation = -1.0
        self.test_at_best_validation = 0.0
        self.test_maximum = 0.0
        self._counts: Tensor | None = None

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if trainer.sanity_checking:
            return
        if not isinstance(outputs, dict) or "probabilities" not in outputs:
            raise ValueError(
                f"OracleTestMaximum needs probabilities from validation_step, which {type(pl_module).__name__} does not return: "
                "leave the callback out"
            )
        right_N = outputs["probabilities"].argmax(dim=-1) == batch.y
        masks = (batch.val_mask, batch.test_mask)
        counts = torch.stack([total for mask_N in masks for total in ((right_N & mask_N).sum(), mask_N.sum())])
        self._counts = counts if self._counts is None else self._counts + counts

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking or self._counts is None:
            return
        counts: Any = trainer.strategy.reduce(self._counts, reduce_op="sum")
        self._counts = None
        right_val, val, right_test, test = counts.tolist()
        if not val or not test:
            raise ValueError(
                f"OracleTestMaximum saw {val} validation and {test} test nodes in a validation: it needs whole graphs, so leave "
                "it out where neighbours are sampled"
            )
        self.follow(right_val / val, right_test / test)
        values = {"oracle/test_max": self.test_maximum, "oracle/test_at_best_val": self.test_at_best_validation}
        pl_module.log_dict(values, batch_size=1, rank_zero_only=False)

    def follow(self, validation_accuracy: float, test_accuracy: float) -> None:
        """Take note of an epoch."""
        self.test_maximum = max(self.test_maximum, test_accuracy)
        if validation_accuracy > self.best_validation:
            self.best_validation, self.test_at_best_validation = validation_accuracy, test_accuracy

    def state_dict(self) -> dict[str, float]:
        return {
            "best_validation": self.best_validation,
            "test_at_best_validation": self.test_at_best_validation,
            "test_maximum": self.test_maximum,
        }

    def load_state_dict(self, state_dict: dict[str, float]) -> None:
        self.best_validation = state_dict["best_validation"]
        self.test_at_best_validation = state_dict["test_at_best_validation"]
        self.test_maximum = state_dict["test_maximum"]
