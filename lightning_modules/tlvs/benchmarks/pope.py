"""POPE: yes-or-no questions about objects."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torchmetrics import Metric

from lightning_modules.tlvs.benchmarks.same_length import check_same_length, check_texts
from lightning_modules.tlvs.benchmarks.yes_no import PARSERS


class POPE(Metric):
    r"""Accuracy, precision, recall, F1 and share of yes; yes is the positive class.

    .. math::
        P = \frac{TP}{TP + FP}, \quad R = \frac{TP}{TP + FN}, \quad F_1 = \frac{2 TP}{2 TP + FP + FN}, \quad
        \text{yes} = \frac{TP + FP}{N}

    A ratio whose denominator is 0 is NaN (the official script stops there).

    Args:
        parser: whose reading of an answer counts, see :mod:`~lightning_modules.tlvs.benchmarks.yes_no`. Scores of different parsers
            do not belong in one table.

    Raises:
        ValueError: if the parser is unknown.

    Source: Li et al. 2023 (arXiv 2305.10355).
    """

    batch_keys = ("label",)
    full_state_update = False
    higher_is_better = True
    TP: Tensor
    FP: Tensor
    TN: Tensor
    FN: Tensor

    def __init__(self, parser: Literal["official", "vista", "vcd"] = "official", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if parser not in PARSERS:
            raise ValueError(f"parser={parser!r} is unknown, use one of {', '.join(PARSERS)}")
        self.parser = parser
        for name in ("TP", "FP", "TN", "FN"):
            self.add_state(name, torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")

    def update(self, answers: Sequence[str] | Tensor, labels: Sequence[str] | Tensor) -> None:
        """Add a batch.

        Args:
            answers: texts; or bool ``[B]``, True for yes, which no parser reads.
            labels: ``yes`` or ``no`` each; or bool ``[B]``.

        Raises:
            ValueError: if there are not as many labels as answers, or a label is something else.
        """
        check_texts(answers)
        check_texts(labels, "labels")
        check_same_length(answers=answers, labels=labels)
        truth_B = labels if isinstance(labels, Tensor) else torch.tensor([_is_yes(label) for label in labels], dtype=torch.bool)
        if isinstance(answers, Tensor):
            said_B = answers
        else:
            read = PARSERS[self.parser]
            said_B = torch.tensor(
                [read(answer, truth) for answer, truth in zip(answers, truth_B.tolist(), strict=True)], dtype=torch.bool
            )
        truth_B, said_B = truth_B.to(self.device, torch.bool), said_B.to(self.device, torch.bool)
        self.TP += (said_B & truth_B).sum()
        self.FP += (said_B & ~truth_B).sum()
        self.TN += (~said_B & ~truth_B).sum()
        self.FN += (~said_B & truth_B).sum()

    def compute(self) -> dict[str, Tensor]:
        """Return ``accuracy``, ``precision``, ``recall``, ``f1`` and ``yes_ratio``, each in [0, 1]."""
        TP, FP, TN, FN = self.TP, self.FP, self.TN, self.FN
        total = TP + FP + TN + FN
        return {
            "accuracy": (TP + TN) / total,
            "precision": TP / (TP + FP),
            "recall": TP / (TP + FN),
            "f1": 2 * TP / (2 * TP + FP + FN),
            "yes_ratio": (TP + FP) / total,
        }


def _is_yes(label: str) -> bool:
    normal = label.strip().lower()
    if normal not in ("yes", "no"):
        raise ValueError(f"label {label!r} is neither yes nor no")
    return normal == "yes"
