"""Which words of a caption name which object."""

import ast
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from torch import Tensor

from lightning_modules.tlvs.benchmarks.words import singular, tokenize

ANIMALS = ("bird", "cat", "dog", "horse", "sheep", "cow", "elephant", "bear", "zebra", "giraffe", "animal", "cub")
VEHICLES = ("jet", "train")
COCO_DOUBLE_WORDS = {
    **{f"{age} {animal}": animal for age in ("baby", "adult") for animal in ANIMALS},
    **{f"passenger {vehicle}": vehicle for vehicle in VEHICLES},
    "bow tie": "tie",
    "home plate": "home plate",
    "toilet seat": "toilet",
    "train track": "train track",
    "wine glas": "wine glass",
}
"""Double words that no table of synonyms says: a baby elephant is no person. Some packages make ``glas`` of ``glass``."""


class Lexicon:
    """A closed vocabulary of objects: their names, their synonyms, and double words that are one.

    Args:
        synonyms: the words for each object, by the object's name, which is no word for it unless it is among them.
        double_words: what two neighbouring words stand for, beside the two-word synonyms, which stand for themselves.
        singularise: makes the singular of a lower-case word before it is looked up.

    Raises:
        ValueError: if there is no object.

    Source: Rohrbach et al. 2018 (arXiv 1809.02156) and LisaAnne/Hallucination, ``utils/chair.py``.
    """

    def __init__(
        self,
        synonyms: Mapping[str, Iterable[str]],
        double_words: Mapping[str, str] | None = None,
        singularise: Callable[[str], str] = singular,
    ) -> None:
        if not synonyms:
            raise ValueError("a lexicon needs at least one object")
        self.objects = list(synonyms)
        self.object_of = {word: name for name, words in synonyms.items() for word in words}
        pairs = {" ".join(word.split()) for word in self.object_of if len(word.split()) == 2}
        self.double_words = {pair: pair for pair in sorted(pairs)} | dict(double_words or {})
        self.singularise = singularise

    @classmethod
    def closed(cls, words: Iterable[str]) -> "Lexicon":
        """Return a lexicon in which every word is an object of its own and stands as it is, as in the scene world."""
        return cls({word: [word] for word in words}, singularise=str)

    @classmethod
    def read(cls, path: str | Path, singularise: Callable[[str], str] = singular) -> "Lexicon":
        """Read a table of synonyms and add the double words of CHAIR.

        ======== ===============================================================================================================
        ending   what is read
        ======== ===============================================================================================================
        ``.txt`` ``data/synonyms.txt`` of LisaAnne/Hallucination: an object a line, words separated by a comma and a blank
        ``.py``  a copy of ``chair.py`` that holds such lines as the text ``synonyms_txt``; nothing in it is run
        ``.json`` ``{"person": ["man", "woman"], …}``; the name of an object is a word for it
        ======== ===============================================================================================================

        As in the official script a line is cut at each comma with one blank: after two blanks a word begins with one and is never
        found. In the official table these are ``motor bike`` and ``cheesecake``.

        Args:
            path: the file.
            singularise: makes the singular of a word.

        Raises:
            FileNotFoundError: if there is no such file; names where the table is published.
            ValueError: if the file holds no table.
        """
        path = Path(path).expanduser()
        if not path.is_file():
            raise FileNotFoundError(
                f"there is no table of synonyms at {path}: take data/synonyms.txt of github.com/LisaAnne/Hallucination"
            )
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            synonyms = _json_table(text, path)
        else:
            synonyms = _comma_table(_text_in_script(text, path) if path.suffix == ".py" else text)
        if not synonyms:
            raise ValueError(f"{path} holds no synonyms: one object a line is expected, `car, automobile, van`")
        return cls(synonyms, COCO_DOUBLE_WORDS, singularise)

    def mentions(self, caption: str) -> list[str]:
        """Return the object of each mention in a caption, in order and with repetition.

        Words are made singular, then pairs of neighbours are joined from left to right, then ``seat`` is left out if a ``toilet``
        is there too ("the seat of the toilet" is no chair), then each word is looked up.
        """
        words = [self.singularise(word) for word in tokenize(caption.lower())]
        joined, i = [], 0
        while i < len(words):
            pair = " ".join(words[i : i + 2])
            is_pair = pair in self.double_words
            joined.append(self.double_words[pair] if is_pair else words[i])
            i += 2 if is_pair else 1
        if "toilet" in joined:
            joined = [word for word in joined if word != "seat"]
        return [self.object_of[word] for word in joined if word in self.object_of]

    def names(self, objects_BN: Tensor) -> list[set[str]]:
        """Return the set of names of each row of object numbers ``[B, N]``; negative numbers stand for nothing."""
        return [{self.objects[number] for number in row if number >= 0} for row in objects_BN.tolist()]


def _comma_table(text: str) -> dict[str, list[str]]:
    lines = [line.strip().split(", ") for line in text.splitlines() if line.strip()]
    return {words[0]: words for words in lines}


def _text_in_script(text: str, path: Path) -> str:
    try:
        statements = ast.parse(text).body
    except SyntaxError as error:
        raise ValueError(f"{path} is no Python 3 file ({error}): save its table of synonyms as a .txt file") from error
    for statement in statements:
        is_table = isinstance(statement, ast.Assign) and any(ast.unparse(target) == "synonyms_txt" for target in statement.targets)
        if is_table and isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str):  # type: ignore[attr-defined]
            return statement.value.value  # type: ignore[attr-defined]
    raise ValueError(f"{path} has no text `synonyms_txt`: save the table of synonyms as a .txt file")


def _json_table(text: str, path: Path) -> dict[str, list[str]]:
    try:
        table = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is no JSON file ({error})") from error
    if not isinstance(table, dict) or not all(isinstance(words, list) for words in table.values()):
        raise ValueError(f'{path} must hold an object such as {{"person": ["man", "woman"]}}')
    return {name: [name, *words] for name, words in table.items()}
