"""How published scripts read a yes or a no out of an answer to a POPE question."""

from collections.abc import Callable

NegationWords = frozenset[str]
OFFICIAL_NEGATIONS: NegationWords = frozenset({"No", "not", "no"})
VISTA_NEGATIONS: NegationWords = frozenset({"No", "not", "no", "NO"})


def official(answer: str, label: bool) -> bool:
    """Read as POPE's own script does: yes, unless ``No``, ``no`` or ``not`` is a word of the first sentence.

    Words are what single blanks separate in the text before the first full stop, without its commas. So "Yes, there is no dog"
    is a no, and "There isn't one", "NO" and "No!" are a yes.

    Source: RUCAIBox/POPE, ``evaluate.py``.
    """
    first_sentence = answer.split(".")[0].replace(",", "")
    return OFFICIAL_NEGATIONS.isdisjoint(first_sentence.split(" "))


def vista(answer: str, label: bool) -> bool:
    """Read as VISTA, OPERA and others do: yes, unless some word of the whole answer is a negation or ends with ``n't``.

    Full stops and commas are taken out without a blank in their place, so that "Yes.No" is one word and a yes.

    Source: LzVv123456/VISTA.
    """
    words = answer.replace(".", "").replace(",", "").split(" ")
    return VISTA_NEGATIONS.isdisjoint(words) and not any(word.endswith("n't") for word in words)


def vcd(answer: str, label: bool) -> bool:
    """Read as VCD does, who looks for the letters of the right answer: ``yes`` where it is yes, else ``no``.

    An answer with neither is wrong in both cases, and "I do not know" is right where no is right, as ``know`` and ``not`` hold
    ``no``.

    Source: DAMO-NLP-SG/VCD, ``experiments/eval/eval_pope.py``.
    """
    letters = answer.lower()
    return "yes" in letters if label else "no" not in letters


PARSERS: dict[str, Callable[[str, bool], bool]] = {"official": official, "vista": vista, "vcd": vcd}
"""Parsers by their names: the answer and the true label give what the answer says, True for yes."""
