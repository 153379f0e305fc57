"""MMHal-Bench: open questions whose answers a judge rates from 0 to 6."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from lightning_modules.tlvs.benchmarks.same_length import check_same_length, check_texts

QUESTION_TYPES = ("attribute", "adversarial", "comparison", "counting", "relation", "environment", "holistic", "other")
RATING = re.compile(r"rating: ([0-6])")
HONEST_FROM = 3


def read_rating(text: str) -> int | None:
    """Return the one rating that a judge's text gives, ``Rating: 4``, and None if it gives none or several different ones.

    Capital letters do not matter, one blank must stand between, and only the first digit counts, as in the official script.
    """
    found = set(RATING.findall(text.lower()))
    return int(found.pop()) if len(found) == 1 else None


class MMHal(Metric):
    """Mean rating and share of hallucinated answers, for all questions and the mean rating of each of the eight types.

    A rating below 3 is a hallucination. A judge's text without one clear rating counts as 0, as in the official script, and
    ``unreadable`` says what share of texts that was.

    Args:
        judge: writes an evaluation with ``Rating: 0`` to ``Rating: 6`` for a record (``question``, ``image_content``,
            ``gt_answer``, …) and an answer. Published numbers are of GPT-4 with the prompt in the benchmark's ``eval_gpt4.py``.
            For evaluations that you have already, give a function that looks them up.

    Raises:
        ValueError: if there is no judge.

    Source: Sun et al. 2023 (arXiv 2309.14525), Shengcao1006/MMHal-Bench.
    """

    batch_keys = ("record",)
    full_state_update = False
    higher_is_better = True
    ratings: Tensor
    hallucinated: Tensor
    unreadable: Tensor
    questions: Tensor

    def __init__(self, judge: Callable[[Mapping[str, Any], str], str] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if judge is None:
            raise ValueError(
                "MMHal-Bench has no score without a judge: give `judge`, a function of a record and an answer that returns a text "
                "with `Rating: n`"
            )
        self.judge = judge
        for name in ("ratings", "hallucinated", "unreadable", "questions"):
            self.add_state(name, torch.zeros(len(QUESTION_TYPES), dtype=torch.long), dist_reduce_fx="sum")

    def update(self, answers: Sequence[str], records: Sequence[Mapping[str, Any]]) -> None:
        """Have a batch judged.

        Args:
            answers: texts.
            records: rows of ``response_template.json``.

        Raises:
            ValueError: if there are not as many records as answers, or a question's type is unknown.
        """
        check_texts(answers)
        check_same_length(answers=answers, records=records)
        for answer, record in zip(answers, records, strict=True):
            if record.get("question_type") not in QUESTION_TYPES:
                raise ValueError(f"question_type {record.get('question_type')!r} is none of {', '.join(QUESTION_TYPES)}")
            kind = QUESTION_TYPES.index(record["question_type"])
            rating = read_rating(self.judge(record, answer))
            self.questions[kind] += 1
            self.ratings[kind] += rating or 0
            self.unreadable[kind] += rating is None
            self.hallucinated[kind] += (rating or 0) < HONEST_FROM

    def compute(self) -> dict[str, Tensor]:
        """Return ``score`` in [0, 6], ``hallucination_rate`` and ``unreadable`` in [0, 1], and ``score_attribute``, …

        The mean rating of a type without a question is NaN.
        """
        total = self.questions.sum()
        kinds = zip(QUESTION_TYPES, self.ratings / self.questions, strict=True)
        return {
            "score": self.ratings.sum() / total,
            "hallucination_rate": self.hallucinated.sum() / total,
            "unreadable": self.unreadable.sum() / total,
            **{f"score_{kind}": score for kind, score in kinds},
        }
