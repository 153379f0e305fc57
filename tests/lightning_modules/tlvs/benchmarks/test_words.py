import importlib.util
import sys

import pytest

from lightning_modules.tlvs.benchmarks.words import inflect_singular, rule_nouns, singular, tokenize, wordnet_nouns

PLURALS = {
    "dogs": "dog",
    "glasses": "glass",
    "wine": "wine",
    "buses": "bus",
    "benches": "bench",
    "couches": "couch",
    "toothbrushes": "toothbrush",
    "boxes": "box",
    "horses": "horse",
    "houses": "house",
    "vases": "vase",
    "potatoes": "potato",
    "shoes": "shoe",
    "puppies": "puppy",
    "doggies": "doggy",
    "ties": "tie",
    "neckties": "necktie",
    "cookies": "cookie",
    "knives": "knife",
    "shelves": "shelf",
    "gloves": "glove",
    "leaves": "leaf",
    "men": "man",
    "women": "woman",
    "firemen": "fireman",
    "children": "child",
    "geese": "goose",
    "mice": "mouse",
    "skis": "ski",
    "sheep": "sheep",
    "scissors": "scissors",
    "bus": "bus",
    "grass": "grass",
    "tennis": "tennis",
    "specimen": "specimen",
    "people": "people",
}


@pytest.mark.parametrize(("plural", "expected"), PLURALS.items())
def test_singular_by_rules(plural: str, expected: str):
    assert singular(plural) == expected
    assert singular(expected) == expected


def test_capitals_are_left_alone():
    assert singular("Dogs") == "Dogs"
    assert rule_nouns("Dogs and TVs near e-books, two cats' toys.") == ["Dogs", "and", "TVs", "near", "e-book", "two", "cat", "toy"]


def test_words():
    assert tokenize("A well-lit café; the dog's ball (red).") == ["A", "well-lit", "café", "the", "dog", "s", "ball", "red"]


@pytest.mark.skipif(importlib.util.find_spec("inflect") is None, reason="inflect is not installed (leyden[nlp])")
def test_inflect_agrees_with_the_rules():
    convert = inflect_singular()
    assert convert("people") == "person"
    assert {plural: convert(plural) for plural in PLURALS} | {"people": "people"} == PLURALS


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "inflect", None)
    monkeypatch.setitem(sys.modules, "nltk", None)
    for build in (inflect_singular, wordnet_nouns):
        with pytest.raises(ImportError, match=r"pip install 'leyden\[nlp\]'"):
            build()
