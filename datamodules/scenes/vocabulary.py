"""The closed vocabulary of all texts about scenes."""

from collections.abc import Sequence

ANCHORS = ("circle", "square", "triangle", "diamond")
COMPANIONS = ("star", "cross", "ring", "bar", "dot", "wedge", "arch", "hook")
EXTRAS = ("splat", "puff")
CATEGORIES = (*ANCHORS, *COMPANIONS)
"""What a scene of ``grid4`` is made of; the number of an object is its place here, in :data:`OBJECTS` for ``quad``."""
OBJECTS = (*CATEGORIES, *EXTRAS)
COLOURS = ("red", "green", "blue", "yellow", "purple", "cyan")
WORDS = (
    *("<pad>", "<eos>", "<cap>", "<qa>", "<gen>", "yes", "no"),
    *("there", "is", "a", "that", "and", ".", "?", "plain", "messy"),
    *OBJECTS,
    *COLOURS,
)
IDS = {word: number for number, word in enumerate(WORDS)}
PAD, EOS, CAPTION, QUESTION, GENERATE, YES, NO = range(7)


def encode(text: str) -> list[int]:
    """Return the ids of words with spaces between them.

    Raises:
        ValueError: if a word is not in the vocabulary.
    """
    words = text.split()
    unknown = [word for word in words if word not in IDS]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is none of the {len(WORDS)} words of scenes: {' '.join(WORDS)}")
    return [IDS[word] for word in words]


def decode(ids: Sequence[int]) -> str:
    """Return the words of ids up to ``<eos>``, which is kept; ``<pad>`` is left out.

    Raises:
        ValueError: if an id is outside the vocabulary.
    """
    words = []
    for number in ids:
        if not 0 <= number < len(WORDS):
            raise ValueError(f"id {number} is outside the vocabulary of {len(WORDS)} words")
        if number != PAD:
            words.append(WORDS[number])
        if number == EOS:
            break
    return " ".join(words)
