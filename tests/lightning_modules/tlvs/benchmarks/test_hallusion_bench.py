import json
import math
import random
from collections import defaultdict

import pytest
import torch

from datamodules.roots import find_data
from lightning_modules.tlvs.benchmarks import HallusionBench
from lightning_modules.tlvs.benchmarks.hallusion_judges import read_answer, read_verdict, rule_judge

real = find_data("vlm/hallusionbench/HallusionBench.json")


def row(category: str, visual: int, figure: int, question: int, truth: int, set_id: int = 0) -> dict[str, str]:
    names = {"visual_input": visual, "set_id": set_id, "figure_id": figure, "question_id": question, "gt_answer": truth}
    return {"category": category, "subcategory": "chart"} | {name: str(value) for name, value in names.items()}


ROWS = [
    row("VS", 0, 0, 0, truth=1),  # no figure
    row("VS", 0, 0, 1, truth=0),
    row("VS", 1, 1, 0, truth=1),
    row("VS", 2, 2, 0, truth=0),
    row("VD", 1, 0, 0, truth=1),
    row("VD", 1, 0, 1, truth=0),
    row("VD", 2, 1, 0, truth=0),
]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("Yes, it is.", "yes"),
        ("no", "no"),
        ("  **No**, it isn't", "no"),
        ("Yes, although it is not certain", "yes"),  # the first word decides
        ("It cannot be determined from the picture", "uncertain"),
        ("I am not sure", "uncertain"),
        ("I don’t know", "uncertain"),
        ("There is no image here", "uncertain"),
        ("The statement is false", "no"),
        ("The line isn't longer", "no"),
        ("That is correct", "yes"),
        ("That is not correct", "no"),
        ("Nobody", "uncertain"),
        ("Switzerland", "uncertain"),
        ("", "uncertain"),
    ],
)
def test_rules_read_an_answer(answer: str, said: str):
    assert read_answer(answer) == said


@pytest.mark.parametrize(("text", "verdict"), [("Incorrect.", 0), ("correct", 1), ("unclear", 2), ("I do not know", 2)])
def test_verdicts(text: str, verdict: int):
    assert read_verdict(text) == verdict


def test_by_hand():
    metric = HallusionBench(ROWS)
    answers = ["I am not sure", "no", "yes", "yes", "yes", "not sure", "no"]
    metric.update(answers[:3], [0, 1, 2])
    metric.update(answers[3:], torch.tensor([3, 4, 5, 6]))
    scores = {name: value.item() for name, value in metric.compute().items()}
    # right: 0 (uncertain without a figure), 1, 2, 4, 6; wrong: 3, and 5, which is unclear with a figure
    expected = {
        "aAcc": 5 / 7,
        "qAcc": 2 / 4,  # VS 1 and VD 0; VS 0 misses row 3, VD 1 row 5
        "fAcc": 2 / 4,  # VS figures 1 and 2 and VD figures 0 and 1: right are VS 1 and VD 1
        "easy_qAcc": 3 / 4,  # VS 0 (rows 0, 2), VS 1, VD 0
        "hard_qAcc": 1 / 2,  # row 3 is wrong, row 6 right
        "yes_bias": 5 / 7 - 3 / 7,  # rows 0, 2 and 4 are a right yes; rows 3 and 5, wrong where no is true, pass for a yes
        "unclear": 2 / 7,
        "answered": 1,
    }
    assert scores == pytest.approx(expected, abs=1e-6)


def test_an_uncertain_answer_is_wrong_where_there_is_a_figure():
    metric = HallusionBench(ROWS)
    metric.update(["not sure"] * 3, [0, 2, 4])
    scores = metric.compute()
    assert scores["aAcc"].item() == pytest.approx(1 / 3)
    assert scores["answered"].item() == pytest.approx(3 / 7)


def test_earlier_definition_of_hard():
    metric = HallusionBench(ROWS, edited_by="figure_id")
    metric.update(["no", "yes"], [2, 6])
    assert metric.compute()["hard_qAcc"] == 0  # row 2 has figure 1, so it is hard
    assert math.isnan(metric.compute()["easy_qAcc"])
    new = HallusionBench(ROWS)
    new.update(["yes", "yes"], [2, 6])
    assert new.compute()["easy_qAcc"] == 1


def test_another_judge():
    seen = []

    def judge(record, answer: str) -> str:
        seen.append((record["question_id"], answer))
        return "The answer is CORRECT" if answer == "a" else "unclear"

    metric = HallusionBench(ROWS, judge)
    metric.update(["a", "b"], [1, 5])
    assert seen == [("1", "a"), ("1", "b")]
    assert metric.compute()["aAcc"] == 0.5


@pytest.mark.skipif(real is None, reason="no vlm/hallusionbench in LEYDEN_DATA or the cache folder")
def test_official_file():
    assert real is not None
    rows = json.loads(real.read_text())
    draw = random.Random(4)
    answers = [
        ("yes" if row["gt_answer"] == "1" else "no") if draw.random() < 0.8 else draw.choice(["yes", "no", "unclear"])
        for row in rows
    ]
    metric = HallusionBench(rows)
    order = list(range(len(rows)))
    draw.shuffle(order)  # batches need not keep groups together
    for start in range(0, len(rows), 300):
        batch = order[start : start + 300]
        metric.update([answers[i] for i in batch], batch)
    scores = {name: value.item() for name, value in metric.compute().items()}

    right, pairs, easy, hard, figures = [], *(defaultdict(list) for _ in range(4))
    for record, answer in zip(rows, answers, strict=True):
        verdict = rule_judge(record, answer)
        good = verdict == "correct" or (verdict == "unclear" and record["category"] == "VS" and record["visual_input"] == "0")
        right.append(good)
        names = [record[key] for key in ("category", "subcategory", "set_id")]
        pair = (*names, record["question_id"])
        pairs[pair].append(good)
        (hard if record["visual_input"] == "2" else easy)[pair].append(good)
        if not (record["category"] == "VS" and record["figure_id"] == "0"):
            figures[(*names, record["figure_id"])].append(good)
    expected = {"aAcc": sum(right) / 1129}
    for name, groups in (("qAcc", pairs), ("easy_qAcc", easy), ("hard_qAcc", hard), ("fAcc", figures)):
        expected[name] = sum(map(all, groups.values())) / len(groups)
    says_yes = [good == (record["gt_answer"] == "1") for good, record in zip(right, rows, strict=True)]
    expected["yes_bias"] = (sum(says_yes) - 484) / 1129
    assert {name: scores[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    assert (len(pairs), len(figures)) == (455, 346)
    assert 0.3 < expected["qAcc"] < expected["aAcc"] < 0.95


def test_bad_input():
    with pytest.raises(ValueError, match="rows of HallusionBench.json"):
        HallusionBench([])
    with pytest.raises(ValueError, match="row 1 of HallusionBench has no 'gt_answer'"):
        HallusionBench([ROWS[0], {key: value for key, value in ROWS[1].items() if key != "gt_answer"}])
    with pytest.raises(ValueError, match="row 2 repeats the question VS/chart/0/0/0"):
        HallusionBench([ROWS[0], ROWS[1], ROWS[0]])
    with pytest.raises(ValueError, match="use visual_input or figure_id"):
        HallusionBench(ROWS, edited_by="eye")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="1 answers, 2 indices"):
        HallusionBench(ROWS).update(["yes"], [0, 1])
    with pytest.raises(ValueError, match="no row 7, HallusionBench has rows 0 to 6"):
        HallusionBench(ROWS).update(["yes"], [7])
    metric = HallusionBench(ROWS)
    metric.update(["yes", "yes", "no"], [2, 3, 3])
    with pytest.raises(ValueError, match="row 3 was answered 2 times"):
        metric.compute()
