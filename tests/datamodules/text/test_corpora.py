from hashlib import sha256
from pathlib import Path

import pytest

from datamodules.roots import find_data
from datamodules.text.corpora import load_corpus, split_corpus

NOVELS = {
    "emma": "dd08b340",
    "mansfieldpark": "e0e9ef38",
    "northangerabbey": "8618a5ac",
    "persuasion": "726513a6",
    "prideprejudice": "2e44edaa",
    "sensesensibility": "0996d908",
}


def needs(name: str):
    return pytest.mark.skipif(find_data(name) is None, reason=f"no {name} in LEYDEN_DATA or the cache folder")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder apart from the user's own ones."""
    monkeypatch.delenv("LEYDEN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "root" / "text").mkdir(parents=True)
    return tmp_path / "root"


@needs("text/tinyshakespeare.txt")
def test_shakespeare_has_the_usual_training_split():
    splits = split_corpus(load_corpus("shakespeare"), val=0.05, test=0.05)
    assert [len(splits[name]) for name in ("train", "val", "test")] == [1_003_854, 55_770, 55_770]
    assert len(set(splits["train"])) == 65
    assert splits["train"].startswith("First Citizen:\nBefore we proceed")


@needs("text/austen.txt")
def test_austen_has_six_whole_novels():
    novels = load_corpus("austen")
    assert {title: sha256(text.encode()).hexdigest()[:8] for title, text in novels.items()} == NOVELS
    assert len(set("".join(novels.values()))) == 81
    splits = split_corpus(novels, "persuasion", "northangerabbey")
    assert splits["val"] == novels["persuasion"]
    assert novels["persuasion"] not in splits["train"]


def test_topics_are_always_there(root: Path):
    topics = load_corpus("topics")
    assert "lambda" in topics
    assert sum(map(len, topics.values())) > 100_000


def test_novels_by_title(root: Path):
    (root / "text" / "austen.txt").write_text("\f".join(f"text of {title}\n" for title in NOVELS), encoding="utf-8")
    novels = load_corpus("austen", root)
    assert list(novels) == list(NOVELS)
    assert novels["prideprejudice"] == "text of prideprejudice\n"
    (root / "text" / "austen.txt").write_text("one\ftwo", encoding="utf-8")
    with pytest.raises(ValueError, match="holds 2 documents, expected emma"):
        load_corpus("austen", root)


def test_own_files(root: Path):
    (root / "mine.txt").write_text("löwe\r\n\fzwei", encoding="utf-8", newline="")
    for source in (str(root / "mine.txt"), "mine.txt"):
        assert load_corpus(source, root) == {"document0": "löwe\n", "document1": "zwei"}


def test_whole_documents_are_held_out():
    documents = {"a": "AAA", "b": "BBB", "c": "CCC"}
    assert split_corpus(documents, "c", "a") == {"train": "BBB", "val": "CCC", "test": "AAA"}
    assert split_corpus(documents, "a", 0.0) == {"train": "BBB\nCCC", "val": "AAA", "test": ""}
    assert documents == {"a": "AAA", "b": "BBB", "c": "CCC"}


def test_shares_are_cut_from_the_end():
    text = "".join(map(chr, range(100, 200)))
    splits = split_corpus({"all": text}, 0.2, 0.1)
    assert splits == {"train": text[:70], "val": text[70:90], "test": text[90:]}
    assert split_corpus({"b": "x", "all": text}, "b", 0.25) == {"train": text[:75], "val": "x", "test": text[75:]}


@pytest.mark.parametrize(
    ("val", "test", "message"),
    [
        ("d", 0.1, "val='d' is no document that is left, choose one of a, b"),
        ("a", "a", "test='a' is no document that is left, choose one of b"),
        (0.5, 0.5, "leave something for training"),
        (-0.1, 0.1, "must not be negative"),
        (0.0, 0.1, "leave no text for val"),
        ("a", "b", "leave no text for train"),
    ],
)
def test_impossible_splits_are_refused(val: float | str, test: float | str, message: str):
    with pytest.raises(ValueError, match=message):
        split_corpus({"a": "AAAAA", "b": "BBBBB"}, val, test)


def test_what_cannot_be_read_is_named_with_a_remedy(root: Path):
    with pytest.raises(FileNotFoundError, match=r"text/austen.txt is in none of .* --what austen"):
        load_corpus("austen", root)
    with pytest.raises(FileNotFoundError, match="neither a file nor one of topics, shakespeare, plays, austen"):
        load_corpus("nowhere.txt", root)
    (root / "latin.txt").write_bytes("café".encode("latin-1"))
    with pytest.raises(ValueError, match="latin.txt is not UTF-8 text"):
        load_corpus("latin.txt", root)
    (root / "empty.txt").write_text(" \n\f")
    with pytest.raises(ValueError, match="holds no text"):
        load_corpus("empty.txt", root)
