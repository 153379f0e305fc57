"""HallusionBench: questions in groups that must be answered alike."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torchmetrics import Metric

from lightning_modules.tlvs.benchmarks.hallusion_judges import RIGHT, UNCLEAR, Judge, Record, read_verdict, rule_judge
from lightning_modules.tlvs.benchmarks.same_length import check_same_length, check_texts

FIELDS = ("category", "subcategory", "visual_input", "set_id", "figure_id", "question_id", "gt_answer")


class HallusionBench(Metric):
    r"""Accuracy per question, per question pair and per figure.

    ============= ============================================================================================================
    score         what it is
    ============= ============================================================================================================
    ``aAcc``      share of right answers
    ``qAcc``      share of questions (category, subcategory, set, question) that are right for all their figures
    ``fAcc``      share of figures (category, subcategory, set, figure) all of whose questions are right; where VS shows
                  none, figure 0, is no figure
    ``easy_qAcc`` qAcc of the rows with an original figure or none
    ``hard_qAcc`` qAcc of the rows with an edited figure
    ``yes_bias``  share of yes among the answers minus its share among the true ones; an answer that is not right is
                  taken for the opposite of the truth, as in the official script
    ``unclear``   share of answers that the judge could not read
    ``answered``  share of the benchmark's rows that were answered; the other scores are of those
    ============= ============================================================================================================

    An answer is right if the judge says ``correct``, and in VS without a figure also if it is unclear: who does not see says so.

    The verdict of each row is a state of its own that is summed over ranks, so that groups may be spread over ranks and batches.

    Args:
        records: rows of ``HallusionBench.json``, in the order of the file.
        judge: gives ``correct``, ``incorrect`` or ``unclear`` for a record and an answer, such as a language model with the
            official prompt; the default reads yes and no by rules.
        edited_by: what makes a row hard: ``visual_input`` 2, or, as earlier versions of the official script had it, a ``figure_id``
            other than 0.

    Raises:
        ValueError: if there are no records, one lacks a field, or two are the same question.

    Source: Guan et al. 2024 (arXiv 2310.14566) and tianyi-lab/HallusionBench, ``utils.py``.
    """

    batch_keys = ("index",)
    full_state_update = False
    higher_is_better = True
    verdicts: Tensor
    pair_N: Tensor
    figure_N: Tensor
    hard_N: Tensor
    blind_N: Tensor
    yes_N: Tensor

    def __init__(
        self,
        records: Sequence[Record],
        judge: Judge = rule_judge,
        edited_by: Literal["visual_input", "figure_id"] = "visual_input",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if edited_by not in ("visual_input", "figure_id"):
            raise ValueError(f"edited_by={edited_by!r} is unknown, use visual_input or figure_id")
        if not records:
            raise ValueError("HallusionBench needs the rows of HallusionBench.json")
        for row, record in enumerate(records):
            for field in FIELDS:
                if field not in record:
                    raise ValueError(f"row {row} of HallusionBench has no {field!r}: give the rows of HallusionBench.json")
        rows = [{field: str(record[field]) for field in FIELDS} for record in records]
        keys = [tuple(row[field] for field in FIELDS if field not in ("visual_input", "gt_answer")) for row in rows]
        if len(set(keys)) < len(keys):
            twice = next(i for i, key in enumerate(keys) if key in keys[:i])
            raise ValueError(f"row {twice} repeats the question {'/'.join(keys[twice])}")
        self.records, self.judge = list(records), judge
        hard = [row["visual_input"] == "2" if edited_by == "visual_input" else row["figure_id"] != "0" for row in rows]
        columns = {
            "pair_N": _numbers([(*key[:3], key[4]) for key in keys]),
            "figure_N": _numbers([key[:4] for key in keys]),
            "hard_N": torch.tensor(hard),
            "blind_N": torch.tensor([row["category"] == "VS" and row["figure_id"] == "0" for row in rows]),
            "yes_N": torch.tensor([row["gt_answer"] == "1" for row in rows]),
        }
        for name, column in columns.items():
            self.register_buffer(name, column, persistent=False)
        self.add_state("verdicts", torch.zeros(len(rows), 3, dtype=torch.long), dist_reduce_fx="sum")

    def update(self, answers: Sequence[str], indices: Sequence[int] | Tensor) -> None:
        """Judge a batch.

        Args:
            answers: texts.
            indices: row of each in ``records``.

        Raises:
            ValueError: if there are not as many rows as answers, or a row does not exist.
        """
        check_texts(answers)
        check_same_length(answers=answers, indices=indices)
        rows = indices.tolist() if isinstance(indices, Tensor) else list(indices)
        wrong = next((row for row in rows if not 0 <= row < len(self.records)), None)
        if wrong is not None:
            raise ValueError(f"there is no row {wrong}, HallusionBench has rows 0 to {len(self.records) - 1}")
        read = [read_verdict(self.judge(self.records[row], answer)) for row, answer in zip(rows, answers, strict=True)]
        at_B2 = torch.tensor([rows, read], dtype=torch.long, device=self.device)
        self.verdicts = self.verdicts.index_put(tuple(at_B2), torch.ones_like(at_B2[0]), accumulate=True)

    def compute(self) -> dict[str, Tensor]:
        """Return the scores of the table, each in [0, 1] (``yes_bias`` in [-1, 1]; NaN where there is nothing to count).

        Raises:
            ValueError: if a row was answered twice.
        """
        times_N = self.verdicts.sum(dim=1)
        if (times_N > 1).any():
            twice = int(times_N.argmax())
            raise ValueError(f"row {twice} was answered {int(times_N[twice])} times: reset the metric between two runs")
        seen_N = times_N == 1
        unclear_N = self.verdicts[:, UNCLEAR] == 1
        right_N = (self.verdicts[:, RIGHT] == 1) | (unclear_N & self.blind_N)
        says_yes_N = right_N == self.yes_N
        return {
            "aAcc": _share_of(right_N, seen_N),
            "qAcc": _groups_right(right_N, self.pair_N, seen_N),
            "fAcc": _groups_right(right_N, self.figure_N, seen_N & ~self.blind_N),
            "easy_qAcc": _groups_right(right_N, self.pair_N, seen_N & ~self.hard_N),
            "hard_qAcc": _groups_right(right_N, self.pair_N, seen_N & self.hard_N),
            "yes_bias": _share_of(says_yes_N, seen_N) - _share_of(self.yes_N, seen_N),
            "unclear": _share_of(unclear_N, seen_N),
            "answered": seen_N.float().mean(),
        }


def _numbers(keys: list[tuple[str, ...]]) -> Tensor:
    """Number equal keys alike, from 0."""
    number = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    return torch.tensor([number[key] for key in keys])


def _share_of(true_N: Tensor, chosen_N: Tensor) -> Tensor:
    return (true_N & chosen_N).sum() / chosen_N.sum()


def _groups_right(right_N: Tensor, group_N: Tensor, chosen_N: Tensor) -> Tensor:
    """Return the share of groups with a chosen row whose chosen rows are all right."""
    sizes = torch.bincount(group_N[chosen_N])
    rights = torch.bincount(group_N[chosen_N & right_N], minlength=len(sizes))
    return ((rights == sizes) & (sizes > 0)).sum() / (sizes > 0).sum()
