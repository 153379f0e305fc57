import json
import math

import pytest

from datamodules.roots import find_data
from lightning_modules.tlvs.benchmarks import MMHal
from lightning_modules.tlvs.benchmarks.mmhal import QUESTION_TYPES, read_rating

real = find_data("vlm/mmhal/response_template.json")


@pytest.mark.parametrize(
    ("text", "rating"),
    [
        ("The answer is fine.\nRating: 4", 4),
        ("RATING: 0", 0),
        ("Rating: 4, so the final rating: 4", 4),
        ("Rating: 4 or Rating: 5", None),
        ("I give it a 4", None),
        ("Rating:4", None),
        ("Rating: 7", None),
        ("Rating: 45", 4),
        ("", None),
    ],
)
def test_ratings(text: str, rating: int | None):
    assert read_rating(text) == rating


def test_by_hand():
    metric = MMHal(lambda record, answer: answer)
    records = [{"question_type": kind} for kind in ("attribute", "attribute", "counting", "counting", "other")]
    metric.update(["Rating: 6", "Rating: 3", "Rating: 2", "Rating: 2 Rating: 5", "good"], records)
    scores = {name: value.item() for name, value in metric.compute().items()}
    assert scores["score"] == pytest.approx((6 + 3 + 2 + 0 + 0) / 5)
    assert scores["hallucination_rate"] == pytest.approx(3 / 5)  # 3 is not one, what cannot be read is
    assert scores["unreadable"] == pytest.approx(2 / 5)
    assert scores["score_attribute"] == pytest.approx(4.5)
    assert scores["score_counting"] == pytest.approx(1)
    assert math.isnan(scores["score_holistic"])


def test_without_a_judge_there_is_no_score():
    with pytest.raises(ValueError, match="no score without a judge"):
        MMHal()


def test_bad_batches():
    metric = MMHal(lambda record, answer: "Rating: 1")
    with pytest.raises(ValueError, match="2 answers, 1 records"):
        metric.update(["a", "b"], [{"question_type": "other"}])
    with pytest.raises(ValueError, match="question_type 'colour' is none of attribute"):
        metric.update(["a"], [{"question_type": "colour"}])


@pytest.mark.skipif(real is None, reason="no vlm/mmhal in LEYDEN_DATA or the cache folder")
def test_official_file():
    assert real is not None
    rows = json.loads(real.read_text())
    asked = []

    def judge(record, answer: str) -> str:
        asked.append(record["question"])
        return f"Explanation.\n\nRating: {answer}"

    metric = MMHal(judge)
    ratings = [(5 * i + i // 8) % 7 for i in range(len(rows))]
    metric.update([str(rating) for rating in ratings], rows)
    scores = {name: value.item() for name, value in metric.compute().items()}
    assert asked == [row["question"] for row in rows]
    assert scores["score"] == pytest.approx(sum(ratings) / 96)
    assert scores["hallucination_rate"] == pytest.approx(sum(rating < 3 for rating in ratings) / 96)
    for i, kind in enumerate(QUESTION_TYPES):  # types repeat in the order that the official script relies on
        assert scores[f"score_{kind}"] == pytest.approx(sum(ratings[i::8]) / 12)
