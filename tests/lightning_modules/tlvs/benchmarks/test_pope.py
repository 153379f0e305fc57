"""POPE's parsers, its scores by hand and on the official file."""

import json
import math
import random

import pytest
import torch

from datamodules.roots import find_data
from lightning_modules.tlvs.benchmarks import POPE
from lightning_modules.tlvs.benchmarks.yes_no import PARSERS


@pytest.mark.parametrize(
    ("answer", "label", "official", "vista", "vcd"),
    [
        ("Yes, there is no dog. Fine", True, False, False, True),  # a negation anywhere in the first sentence
        ("There isn't", True, True, False, False),
        ("There isn't", False, True, False, True),  # no "no" in it: VCD counts a yes
        ("Yes. There is no cat", False, True, False, False),  # the second sentence does not count in the official script
        ("No", False, False, False, False),
        ("NO", False, True, False, False),
        ("No!", False, True, True, False),  # blanks alone separate words
        ("no, it is", True, False, False, False),
        ("I know it is", False, True, True, False),  # "know" holds "no"
        ("maybe", True, True, True, False),  # neither: wrong for VCD whatever the truth
        ("maybe", False, True, True, True),
        ("Yes.No", False, True, True, False),
        ("", True, True, True, False),
    ],
)
def test_quirks_of_the_parsers(answer: str, label: bool, official: bool, vista: bool, vcd: bool):
    assert [PARSERS[name](answer, label) for name in ("official", "vista", "vcd")] == [official, vista, vcd]


def test_by_hand():
    metric = POPE()
    metric.update(["Yes"] * 3 + ["No"] * 5, ["yes", "yes", "no", "no", "no", "no", "yes", "yes"])
    assert [int(getattr(metric, name)) for name in ("TP", "FP", "TN", "FN")] == [2, 1, 3, 2]
    scores = {name: value.item() for name, value in metric.compute().items()}
    expected = {"accuracy": 0.625, "precision": 2 / 3, "recall": 0.5, "f1": 4 / 7, "yes_ratio": 0.375}
    assert scores == pytest.approx(expected, abs=1e-6)


def test_decisions_need_no_parser():
    texts, decisions = POPE("vcd"), POPE("vcd")
    texts.update(["yes", "no", "no"], ["yes", "yes", "no"])
    decisions.update(torch.tensor([True, False, False]), torch.tensor([True, True, False]))
    assert texts.compute() == decisions.compute()


def test_nothing_to_divide_by_is_not_zero():
    metric = POPE()
    metric.update(["No"], ["no"])
    scores = metric.compute()
    assert math.isnan(scores["precision"])
    assert math.isnan(scores["recall"])
    assert scores["accuracy"] == 1


@pytest.mark.skipif(find_data("vlm/pope") is None, reason="no vlm/pope in LEYDEN_DATA or the cache folder")
@pytest.mark.parametrize("parser", ["official", "vista", "vcd"])
def test_official_file(parser: str):
    folder = find_data("vlm/pope")
    assert folder is not None
    rows = [json.loads(line) for line in (folder / "coco_pope_adversarial.json").read_text().splitlines()]
    draw = random.Random(0)
    replies = ["Yes", "No", "Yes, there is.", "There isn't one", "no", "Sure. Not that I know", "I do not see it", "It is unclear"]
    answers = [draw.choice(replies) for _ in rows]

    metric = POPE(parser)
    for start in range(0, len(rows), 700):
        metric.update(answers[start : start + 700], [row["label"] for row in rows[start : start + 700]])
    scores = metric.compute()

    right = yes = both = 0
    for row, answer in zip(rows, answers, strict=True):
        if parser == "official":
            said = not {"No", "no", "not"} & set(answer.partition(".")[0].replace(",", "").split(" "))
        elif parser == "vista":
            words = answer.replace(".", "").replace(",", "").split(" ")
            said = not any(word in ("No", "not", "no", "NO") or word.endswith("n't") for word in words)
        elif row["label"] == "yes":
            said = "yes" in answer.lower()
        else:
            said = "no" not in answer.lower()
        right += said == (row["label"] == "yes")
        yes += said
        both += said and row["label"] == "yes"
    assert scores["accuracy"].item() == pytest.approx(right / 3000, abs=1e-6)
    assert scores["yes_ratio"].item() == pytest.approx(yes / 3000, abs=1e-6)
    assert scores["precision"].item() == pytest.approx(both / yes, abs=1e-6)
    assert scores["recall"].item() == pytest.approx(both / 1500, abs=1e-6)
    assert scores["f1"].item() == pytest.approx(2 * both / (yes + 1500), abs=1e-6)
    assert 0.2 < right / 3000 < 0.8


@pytest.mark.parametrize(
    ("answers", "labels", "message"),
    [
        (["Yes"], ["yes", "no"], "1 answers, 2 labels"),
        (["Yes"], ["maybe"], "'maybe' is neither yes nor no"),
        ("Yes", ["yes", "no", "no"], "one text, give a list"),
    ],
)
def test_bad_batches(answers, labels, message: str):
    with pytest.raises(ValueError, match=message):
        POPE().update(answers, labels)


def test_unknown_parser():
    with pytest.raises(ValueError, match="official, vista, vcd"):
        POPE("strict")  # type: ignore[arg-type]
