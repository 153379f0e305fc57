"""AMBER, discriminative part: yes-or-no questions about existence, attributes and relations."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from lightning_modules.tlvs.benchmarks.same_length import check_same_length, check_texts

KINDS = ("existence", "state", "number", "action", "relation")
KIND_OF_TYPE = {
    "discriminative-hallucination": "existence",
    "discriminative-attribute-state": "state",
    "discriminative-attribute-number": "number",
    "discriminative-attribute-action": "action",
    "discriminative-relation": "relation",
    "relation": "relation",
}
"""Kinds by the types in ``annotations.json``, which has two names for relations."""
GROUPS = {"": KINDS, "attribute_": ("state", "number", "action"), **{f"{kind}_": (kind,) for kind in KINDS}}
SUMS = ("questions", "right", "true_no", "answered_no", "right_no", "neither")


class AMBERDiscriminative(Metric):
    r"""Accuracy, precision, recall and F1 of **No**, the positive class, in percent, for all questions and for each kind.

    .. math::
        P = \frac{\#\text{right No}}{\#\text{answered No}}, \quad R = \frac{\#\text{right No}}{\#\text{true no}}, \quad
        F_1 = \frac{2 P R}{P + R + \epsilon}

    with ε = 10⁻³ for existence and 10⁻⁴ else. As in the script: an answer counts only if it is exactly ``Yes`` or ``No``;
    denominators start at 0.001 for each kind; P and R are rounded to one decimal of a percent before they enter F1. ``neither``
    is the share of answers that are something else: cut your model's answers down to one word first.

    Args:
        rounded: round as the script prints, else nowhere.

    Source: Wang et al. 2023 (arXiv 2311.07397) and junyangwang0410/AMBER, ``inference.py``.
    """

    batch_keys = ("label", "type")
    full_state_update = False
    higher_is_better = True
    counts: Tensor

    def __init__(self, rounded: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rounded = rounded
        self.add_state("counts", torch.zeros(len(KINDS), len(SUMS), dtype=torch.long), dist_reduce_fx="sum")

    def update(self, responses: Sequence[str], labels: Sequence[str], types: Sequence[str]) -> None:
        """Add a batch.

        Args:
            responses: answers.
            labels: ``yes`` or ``no`` each.
            types: type of each question, as in ``annotations.json``.

        Raises:
            ValueError: if the columns have different lengths, or a label or type is unknown.
        """
        check_texts(responses, "responses")
        check_same_length(responses=responses, labels=labels, types=types)
        rows, kinds = [], []
        for response, label, kind in zip(responses, labels, types, strict=True):
            if kind not in KIND_OF_TYPE:
                raise ValueError(f"type {kind!r} is none of AMBER's discriminative types {', '.join(KIND_OF_TYPE)}")
            if label not in ("yes", "no"):
                raise ValueError(f"label {label!r} is neither yes nor no")
            is_no, says_no, says_yes = label == "no", response == "No", response == "Yes"
            rows.append([1, says_no if is_no else says_yes, is_no, says_no, is_no and says_no, not says_no and not says_yes])
            kinds.append(KINDS.index(KIND_OF_TYPE[kind]))
        if rows:
            at_B = torch.tensor(kinds, device=self.device)
            self.counts = self.counts.index_add(0, at_B, torch.tensor(rows, dtype=torch.long, device=self.device))

    def compute(self) -> dict[str, Tensor]:
        """Return ``accuracy``, ``precision``, ``recall``, ``f1`` and ``neither`` in percent.

        The same names after ``attribute_``, ``existence_``, ``state_``, ``number_``, ``action_`` and ``relation_`` are of those
        questions alone; they are there if there was such a question.
        """
        scores: dict[str, Tensor] = {}
        seen = self.counts[:, 0].tolist()
        for prefix, kinds in GROUPS.items():
            chosen = [KINDS.index(kind) for kind in kinds]
            if not prefix or any(seen[i] for i in chosen):
                small = 0.001 * (len(kinds) if prefix else 1)
                scores |= self._scores(self.counts[chosen].sum(dim=0).double(), small, prefix)
        return scores

    def _scores(self, sums: Tensor, small: float, prefix: str) -> dict[str, Tensor]:
        questions, right, true_no, answered_no, right_no, neither = sums
        accuracy, precision, recall = (
            self._round(100 * value)
            for value in (right / (questions + small), right_no / (answered_no + small), right_no / (true_no + small))
        )
        p, r = precision / 100, recall / 100
        f1 = self._round(100 * 2 * p * r / (p + r + (1e-3 if prefix == "existence_" else 1e-4)))
        named = {"accuracy": accuracy, "precision": precision, "recall": recall, "f1": f1}
        named["neither"] = self._round(100 * neither / questions)
        return {prefix + name: value.float() for name, value in named.items()}

    def _round(self, percent: Tensor) -> Tensor:
        return percent.round(decimals=1) if self.rounded else percent
