import re

import numpy as np
import pytest

from datamodules.scenes.text import CAPTION_PROMPT, QUESTION_PROMPT, QUESTIONS, caption, captions, prompt, question
from datamodules.scenes.vocabulary import CATEGORIES, COLOURS, EOS, OBJECTS, PAD, WORDS, YES, decode, encode
from datamodules.scenes.world import SceneWorld


def test_caption_by_hand():
    objects, colours = np.full(16, -1), np.full(16, -1)
    objects[[3, 9]] = CATEGORIES.index("cross"), CATEGORIES.index("square")
    colours[[3, 9]] = COLOURS.index("blue"), COLOURS.index("cyan")
    assert caption(objects, colours) == "<cap> there is a square that is cyan and a cross that is blue . <eos>"


def test_captions_parse_back():
    scenes = SceneWorld().scenes(200, "train")
    rows, lengths = captions(scenes)
    assert rows.shape == (200, lengths.max())
    for row, length, objects, colours in zip(rows, lengths, scenes.objects, scenes.colours, strict=True):
        assert (row[:length] != PAD).all()
        assert (row[length:] == PAD).all()
        assert row[length - 1] == EOS
        told = re.findall(r"a (\w+) that is (\w+)", decode(row.tolist()))
        there = {(OBJECTS[thing], COLOURS[colour]) for thing, colour in zip(objects, colours, strict=True) if thing >= 0}
        assert set(told) == there
        assert len(told) == len(there)
        assert [OBJECTS.index(name) for name, _ in told] == sorted(OBJECTS.index(name) for name, _ in told)
        assert length == 6 * len(there) + 4


def test_questions():
    assert question("star", True) == "<qa> is there a star ? yes <eos>"
    assert decode(QUESTIONS[OBJECTS.index("puff"), 0].tolist()) == "<qa> is there a puff ? no <eos>"
    assert QUESTIONS.shape[:2] == (len(OBJECTS), 2)
    assert (QUESTIONS[:, 1, QUESTION_PROMPT] == YES).all(), "the prompt ends before the answer"
    assert decode(encode("<cap> there")[:CAPTION_PROMPT]) == "<cap>"


def test_prompts_of_quad():
    objects = np.array([-1, OBJECTS.index("splat"), OBJECTS.index("circle"), -1])
    colours = np.array([-1, -1, COLOURS.index("red"), -1])
    assert prompt(objects, colours, messy=False) == "<gen> plain red circle and splat"
    assert prompt(objects, colours, messy=True) == "<gen> messy red circle"
    assert caption(objects, colours) == "<cap> there is a circle that is red and a splat . <eos>"
    encode(prompt(objects, colours, messy=False))


def test_vocabulary():
    assert len(WORDS) == len(set(WORDS)) == 36
    assert [decode([number]) for number in range(1, len(WORDS))] == list(WORDS[1:])
    assert decode([2, 7, PAD, EOS, 9]) == "<cap> there <eos>", "nothing after the end"
    with pytest.raises(ValueError, match="'zebra' is none of the 36 words"):
        encode("there is a zebra")
    with pytest.raises(ValueError, match="id 36 is outside"):
        decode([36])
