"""AMBER's scores by hand, and against a slow count on the official annotations."""

import json
import math
import random
from pathlib import Path

import pytest
import torch

from datamodules.roots import find_data
from lightning_modules.tlvs.benchmarks import AMBERDiscriminative, AMBERGenerative, amber_score
from lightning_modules.tlvs.benchmarks.amber_discriminative import KIND_OF_TYPE

RELATION = {"tree": ["forest", "leave"], "forest": ["tree"], "man": ["person"], "dog": [], "sky": [], "cat": [], "light": []}
real = find_data("vlm/amber")
needs_files = pytest.mark.skipif(real is None, reason="no vlm/amber in LEYDEN_DATA or the cache folder")


def scores(metric) -> dict[str, float]:
    return {name: value.item() for name, value in metric.compute().items()}


def test_generative_by_hand():
    metric = AMBERGenerative(RELATION)
    # dog, sky and tree are there and a cat is not; the second response names nothing: 1 of 4 nouns, 1 of 2 responses
    metric.update(
        ["A dog, a cat and trees under the sky", "It is nice"], [["dog", "sky", "tree"], ["man"]], [["cat", "man"], ["dog"]]
    )
    found = scores(metric)
    assert found["chair"] == pytest.approx(25.0)
    assert found["hal"] == pytest.approx(50.0)
    assert found["cover"] == pytest.approx(75.0)  # three of four objects
    assert found["cog"] == pytest.approx(33.3)  # one of three lures
    assert found["with_similarity"] == 0
    assert metric.setting == "nouns by rule_nouns, no word similarity"


@pytest.mark.parametrize(
    ("response", "truth", "lures", "counts"),
    [
        # counts: kept nouns, hallucinated, covered, lures hit
        ("a forest", ["tree", "forest"], [], [1, 0, 1, 0]),  # an associate of the first object, which alone is covered
        ("a person", ["man"], [], [1, 0, 1, 0]),
        ("a man and a man", ["man", "man"], [], [2, 0, 1, 0]),  # the second of two equal objects is never covered
        ("a light", ["dog"], ["light"], [1, 0, 0, 0]),  # a safe word counts as a noun and as nothing else
        ("a dog", ["dog"], ["dog"], [1, 0, 1, 0]),  # the truth comes before a lure
        ("a leave", [], ["tree"], [1, 1, 0, 1]),  # the associate of a lure
        ("Dog and TV", ["dog"], [], [0, 0, 0, 0]),  # capital letters are other words
        ("a unicorn", ["dog"], [], [0, 0, 0, 0]),  # not in the vocabulary
    ],
)
def test_generative_quirks(response: str, truth: list[str], lures: list[str], counts: list[int]):
    metric = AMBERGenerative(RELATION, safe_words=["light"])
    metric.update([response], [truth], [lures])
    assert [int(n) for n in (metric.kept_nouns, metric.hallucinated_nouns, metric.covered_objects, metric.lures_hit)] == counts


def test_denominators_start_at_a_thousandth():
    metric = AMBERGenerative(RELATION, rounded=False)
    metric.update(["a cat"], [["dog"]], [[]])
    found = scores(metric)
    assert found["chair"] == pytest.approx(100 / 1.001)
    assert found["hal"] == pytest.approx(100.0)
    assert found["cog"] == 0  # no lure: neither counted nor hit


def test_similarity_saves_a_noun_and_hits_a_lure():
    alike = {("cat", "dog"): 0.81, ("sky", "dog"): 0.8}
    metric = AMBERGenerative(RELATION, similarity_fn=lambda one, other: alike.get((one, other), 0.0))
    metric.update(["a cat", "a sky", "a cat"], [["dog"], ["dog"], ["man"]], [["man"], ["man"], ["sky", "dog"]])
    found = scores(metric)
    assert found["chair"] == pytest.approx(66.6)  # 2 / 3.001; the first cat is like the dog; 0.8 is not more than 0.8
    assert found["cover"] == pytest.approx(33.3)
    assert found["cog"] == pytest.approx(25.0)
    assert found["with_similarity"] == 1
    assert "similarity > 0.8" in metric.setting


def slow_counts(nouns: list[str], row: dict, relation: dict, vocabulary: set, safe: set, similar) -> list[int]:
    """Count with one flag for each word in a flat list, as a check of the metric's own way."""

    def flat(objects):
        words, owners = [], []
        for number, name in enumerate(objects):
            for associate in relation[name]:
                words.append(associate)
                owners.append(number)
        for number, name in enumerate(objects):
            words.append(name)
            owners.append(number)
        return words, owners, [0] * len(objects)

    true_words, true_owners, covered = flat(row["truth"])
    lure_words, lure_owners, hit = flat(row["hallu"])
    bad = 0
    kept = [noun for noun in nouns if noun in vocabulary]
    for noun in kept:
        if noun in safe:
            continue
        if noun in true_words:
            covered[true_owners[true_words.index(noun)]] = 1
            continue
        if noun in lure_words:
            hit[lure_owners[lure_words.index(noun)]] = 1
        for word, owner in zip(lure_words, lure_owners, strict=True):
            if similar(noun, word):
                hit[owner] = 1
                break
        for word, owner in zip(true_words, true_owners, strict=True):
            if similar(noun, word):
                covered[owner] = 1
                break
        else:
            bad += 1
    return [len(kept), bad, len(covered), sum(covered), len(hit), sum(hit), 1, int(bad > 0)]


@needs_files
@pytest.mark.parametrize("with_similarity", [False, True])
def test_generative_on_the_official_annotations(with_similarity: bool):
    assert real is not None
    rows = [row for row in json.loads((real / "annotations.json").read_text()) if row["type"] == "generative"]
    relation = json.loads((real / "relation.json").read_text())
    safe = set((real / "safe_words.txt").read_text().split("\n"))
    vocabulary = set(relation) | {word for words in relation.values() for word in words}
    words = sorted(vocabulary) + ["table-top", "unicorn", "Dog"]
    draw = random.Random(1)
    responses = [
        draw.choices(row["truth"], k=3) + draw.choices(row["hallu"], k=draw.randrange(2)) + draw.choices(words, k=draw.randrange(5))
        for row in rows
    ]

    def similarity(one: str, other: str) -> float:
        return 0.9 if one[:2] == other[:2] else 0.0

    metric = AMBERGenerative.from_folder(
        real, nouns=str.split, similarity_fn=similarity if with_similarity else None, rounded=False
    )
    for start in range(0, len(rows), 250):
        batch = slice(start, start + 250)
        texts = [" ".join(words) for words in responses[batch]]
        metric.update(texts, [row["truth"] for row in rows[batch]], [row["hallu"] for row in rows[batch]])

    counts = [
        slow_counts(nouns, row, relation, vocabulary, safe, lambda a, b: with_similarity and a[:2] == b[:2])
        for nouns, row in zip(responses, rows, strict=True)
    ]
    kept, bad, objects, covered, lures, hit, number, hallucinated = map(sum, zip(*counts, strict=True))
    found = scores(metric)
    assert found["chair"] == pytest.approx(100 * bad / (kept + 0.001), rel=1e-6)
    assert found["cover"] == pytest.approx(100 * covered / (objects + 0.001), rel=1e-6)
    assert found["cog"] == pytest.approx(100 * hit / (lures + 0.001), rel=1e-6)
    assert found["hal"] == pytest.approx(100 - 100 * (number - hallucinated) / (number + 0.001), rel=1e-6)
    assert number == 1004
    assert 5 < found["chair"] < 95


def test_discriminative_by_hand():
    metric = AMBERDiscriminative()
    metric.update(
        ["No", "Yes", "No", "no", "Yes", "No."],
        ["no", "no", "yes", "no", "yes", "no"],
        ["discriminative-hallucination"] * 3 + ["discriminative-relation", "relation", "relation"],
    )
    found = scores(metric)
    # right: the first and the fifth; No was answered twice, once rightly, and is true four times
    assert found["accuracy"] == pytest.approx(33.3)
    assert found["precision"] == pytest.approx(50.0)  # 1 / 2.001 is 49.98 %
    assert found["recall"] == pytest.approx(25.0)
    assert found["f1"] == pytest.approx(33.3)
    assert found["neither"] == pytest.approx(33.3)  # "no" and "No." are not the string
    assert found["existence_accuracy"] == pytest.approx(33.3)
    assert found["existence_f1"] == pytest.approx(50.0)
    assert found["relation_precision"] == 0
    assert "state_accuracy" not in found
    assert amber_score(25.0, found["f1"]) == pytest.approx((100 - 25 + 33.3) / 2)


def test_existence_has_a_larger_constant():
    for kind, constant in (("discriminative-hallucination", 1e-3), ("discriminative-attribute-state", 1e-4)):
        metric = AMBERDiscriminative(rounded=False)
        metric.update(["No"] + 999 * ["Yes"], ["no"] * 1000, [kind] * 1000)
        p, r = 1 / 1.001, 1 / 1000.001
        name = "existence_f1" if constant == 1e-3 else "state_f1"
        assert scores(metric)[name] == pytest.approx(100 * 2 * p * r / (p + r + constant), rel=1e-6)


@needs_files
def test_discriminative_on_the_official_annotations():
    assert real is not None
    rows = [row for row in json.loads((real / "annotations.json").read_text()) if row["type"] != "generative"]
    draw = random.Random(2)
    answers = [draw.choices(["Yes", "No", "Yes.", "maybe"], [5, 5, 1, 1])[0] for _ in rows]
    metric = AMBERDiscriminative()
    for start in range(0, len(rows), 4000):
        batch = slice(start, start + 4000)
        metric.update(answers[batch], [row["truth"] for row in rows[batch]], [row["type"] for row in rows[batch]])
    found = scores(metric)

    groups = {
        "": lambda kind: True,
        "existence_": lambda kind: kind == "discriminative-hallucination",
        "attribute_": lambda kind: kind.startswith("discriminative-attribute"),
        "number_": lambda kind: kind == "discriminative-attribute-number",
        "relation_": lambda kind: kind in ("relation", "discriminative-relation"),
    }
    sizes = {"": 14216, "existence_": 4924, "attribute_": 7628, "number_": 2072, "relation_": 1664}
    for prefix, belongs in groups.items():
        chosen = [(answer, row["truth"]) for answer, row in zip(answers, rows, strict=True) if belongs(row["type"])]
        assert len(chosen) == sizes[prefix]
        right_no = sum(pair == ("No", "no") for pair in chosen)
        small = 0.003 if prefix == "attribute_" else 0.001
        precision = round(100 * right_no / (sum(answer == "No" for answer, _ in chosen) + small), 1)
        recall = round(100 * right_no / (sum(truth == "no" for _, truth in chosen) + small), 1)
        p, r = precision / 100, recall / 100
        f1 = round(100 * 2 * p * r / (p + r + (0.001 if prefix == "existence_" else 0.0001)), 1)
        right = right_no + sum(pair == ("Yes", "yes") for pair in chosen)
        expected = {"precision": precision, "recall": recall, "f1": f1, "accuracy": round(100 * right / (len(chosen) + small), 1)}
        assert {name: found[prefix + name] for name in expected} == pytest.approx(expected, abs=1e-4)
    assert set(KIND_OF_TYPE) == {row["type"] for row in rows}


def test_bad_input(tmp_path: Path):
    with pytest.raises(ValueError, match=r"empty"):
        AMBERGenerative({})
    with pytest.raises(ValueError, match="'unicorn' is not in relation.json"):
        AMBERGenerative(RELATION).update(["a dog"], [["unicorn"]], [[]])
    with pytest.raises(ValueError, match="1 responses, 2 truth, 1 lures"):
        AMBERGenerative(RELATION).update(["a dog"], [["dog"], ["cat"]], [[]])
    with pytest.raises(FileNotFoundError, match="safe_words.txt"):
        AMBERGenerative.from_folder(tmp_path)
    with pytest.raises(ValueError, match="'existence' is none of AMBER's"):
        AMBERDiscriminative().update(["No"], ["no"], ["existence"])
    with pytest.raises(ValueError, match="label 'No' is neither"):
        AMBERDiscriminative().update(["No"], ["No"], ["relation"])


def test_no_batch_is_no_error():
    metric = AMBERDiscriminative()
    metric.update([], [], [])
    assert int(metric.counts.sum()) == 0
    assert math.isnan(torch.tensor(scores(metric)["neither"]))
