import logging
import sys
from pathlib import Path

import numpy as np
import pytest

from datamodules.text.tokenizers import UNKNOWN, CharacterTokenizer, byte_pair_tokenizer

TEXT = "the cat and the hat and the bat sat on the mat\nthat is that\n" * 20


def test_characters_by_hand():
    tokenizer = CharacterTokenizer("banana cab")
    assert tokenizer.characters == [UNKNOWN, " ", "a", "b", "c", "n"]
    assert tokenizer.vocab_size == 6
    ids = tokenizer.encode("a cabin 🦁")
    assert ids.dtype == np.int32
    assert ids.tolist() == [2, 1, 4, 2, 3, 0, 5, 1, 0]
    assert tokenizer.decode(ids) == f"a cab{UNKNOWN}n {UNKNOWN}"


def test_every_character_comes_back():
    text = "".join(map(chr, [*range(1, 300), 0x2014, 0xFFFD + 1, 0x1F981]))
    tokenizer = CharacterTokenizer(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert sorted(tokenizer.encode(text).tolist()) == list(range(1, tokenizer.vocab_size))


def test_a_small_vocabulary_keeps_the_frequent_characters():
    tokenizer = CharacterTokenizer("aaaccb", vocab_size=3)
    assert tokenizer.characters == [UNKNOWN, "a", "c"]
    assert tokenizer.encode("abc").tolist() == [1, 0, 2]
    assert CharacterTokenizer("ab", vocab_size=50).vocab_size == 3
    with pytest.raises(ValueError, match="vocab_size=1 leaves no character"):
        CharacterTokenizer("ab", vocab_size=1)


def test_byte_pairs_give_every_text_back(tmp_path: Path):
    pytest.importorskip("tokenizers")
    tokenizer = byte_pair_tokenizer(TEXT, 280, tmp_path)
    for text in (TEXT, "löwe 🦁  two blanks\n\n\tend ", "<|endoftext|>"):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert ids.dtype == np.int32
        assert ids.max() < tokenizer.vocab_size == 280
    assert len(tokenizer.encode(TEXT)) < len(TEXT) / 2
    assert tokenizer.decode(tokenizer.encode(" the the")[:1]) == " the"  # the most frequent word is one token


def test_byte_pairs_are_learned_once_and_alike(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    tokenizers = pytest.importorskip("tokenizers")

    def files(folder: Path) -> list[Path]:
        return sorted((folder / "text").iterdir())

    first = byte_pair_tokenizer(TEXT, 280, tmp_path / "a")
    (kept,) = files(tmp_path / "a")
    again = byte_pair_tokenizer(TEXT, 280, tmp_path / "b")
    assert files(tmp_path / "b")[0].read_bytes() == kept.read_bytes()
    assert (first.encode(TEXT) == again.encode(TEXT)).all()
    learned = tokenizers.trainers.BpeTrainer
    try:
        tokenizers.trainers.BpeTrainer = None  # what is kept needs no trainer
        assert (byte_pair_tokenizer(TEXT, 280, tmp_path / "a").encode(TEXT) == first.encode(TEXT)).all()
    finally:
        tokenizers.trainers.BpeTrainer = learned
    byte_pair_tokenizer(TEXT + "!", 280, tmp_path / "a")
    byte_pair_tokenizer(TEXT, 270, tmp_path / "a")
    assert len(files(tmp_path / "a")) == 3
    kept.write_text("{")
    with caplog.at_level(logging.WARNING):
        assert (byte_pair_tokenizer(TEXT, 280, tmp_path / "a").encode(TEXT) == first.encode(TEXT)).all()
    assert "is damaged and is made anew" in caplog.text
    assert files(tmp_path / "b")[0].read_bytes() == kept.read_bytes()


def test_byte_pairs_need_bytes_and_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ValueError, match="vocab_size=255 is below the 256 bytes"):
        byte_pair_tokenizer(TEXT, 255, tmp_path)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"leyden\[llm\]"):
        byte_pair_tokenizer(TEXT, 300, tmp_path)
