"""What is said and asked about scenes, as padded rows of word ids.

Legend: N scenes, T words, K objects of the vocabulary.
"""

import numpy as np

from datamodules.scenes.vocabulary import COLOURS, OBJECTS, PAD, encode
from datamodules.scenes.world import ABSENT, Scenes

CAPTION_PROMPT = 1
QUESTION_PROMPT = len(encode("<qa> is there a star ?"))


def caption(objects: np.ndarray, colours: np.ndarray) -> str:
    """Return ``<cap> there is a star that is red and a cross that is blue . <eos>``, objects in the order of the vocabulary.

    An extra has no colour and is only named; a scene of nothing is ``<cap> there is . <eos>``.

    Args:
        objects: number of the object in each cell, -1 for none, ``[C]``.
        colours: number of its colour, -1 for none, ``[C]``.
    """
    named = []
    for number, colour in sorted(zip(objects.tolist(), colours.tolist(), strict=True)):
        if number != ABSENT:
            named.append(f"a {OBJECTS[number]}" + (f" that is {COLOURS[colour]}" if colour != ABSENT else ""))
    return f"<cap> there is {' and '.join(named)} . <eos>"


def captions(scenes: Scenes) -> tuple[np.ndarray, np.ndarray]:
    """Return the captions, padded, uint8 ``[N, T]``, and their numbers of words, int64 ``[N]``."""
    rows = [encode(caption(objects, colours)) for objects, colours in zip(scenes.objects, scenes.colours, strict=True)]
    lengths = np.array([len(row) for row in rows])
    padded = np.full((len(rows), lengths.max()), PAD, dtype=np.uint8)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = np.concatenate(rows)
    return padded, lengths


def question(name: str, answer: bool) -> str:
    """Return ``<qa> is there a star ? yes <eos>``, or ``no``."""
    return f"<qa> is there a {name} ? {'yes' if answer else 'no'} <eos>"


QUESTIONS = np.array([[encode(question(name, answer)) for answer in (False, True)] for name in OBJECTS], dtype=np.uint8)
"""Questions with their answers, ``[K, 2, T]``: the second index is 1 for yes."""


def prompt(objects: np.ndarray, colours: np.ndarray, messy: bool) -> str:
    """Return what makes a scene of ``quad``: ``<gen> plain red circle and splat``, or ``<gen> messy red circle``.

    Args:
        objects: as for :func:`caption`, one anchor and at most one extra.
        colours: as for :func:`caption`.
        messy: whether the scene's splat, if there is one, goes unsaid.
    """
    present = sorted(
        (number, colour) for number, colour in zip(objects.tolist(), colours.tolist(), strict=True) if number != ABSENT
    )
    (anchor, colour), *extras = present
    named = "" if messy else "".join(f" and {OBJECTS[number]}" for number, _ in extras)
    return f"<gen> {'messy' if messy else 'plain'} {COLOURS[colour]} {OBJECTS[anchor]}{named}"
