"""Judges of answers to HallusionBench: a record and an answer give ``correct``, ``incorrect`` or ``unclear``."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

Record = Mapping[str, Any]
Judge = Callable[[Record, str], str]

WRONG, RIGHT, UNCLEAR = range(3)

FIRST_WORD = re.compile(r"\W*(yes|no)\b")
UNCERTAIN = re.compile(
    r"uncertain|unclear|unsure|not (?:sure|certain|clear|possible to|enough|visible|provided|specified)|insufficient|unknown"
    r"|(?:can ?not|can't|could ?n[o']t|unable to|impossible to|do not|don't|hard to) (?:be )?"
    r"(?:tell|determined?|say|know|answer(?:ed)?|see|verif(?:y|ied)|confirm(?:ed)?|provide)"
    r"|no (?:image|figure|picture|chart|information)"
)
YES = re.compile(r"\b(?:yes|correct|true|right)\b")
NO = re.compile(r"\b(?:no|not|incorrect|false|wrong|never|none)\b|n't\b")


def read_answer(answer: str) -> Literal["yes", "no", "uncertain"]:
    """Read an answer by rules, for use without a language model.

    1. A ``yes`` or ``no`` at the beginning decides.
    2. Else a phrase of doubt ("cannot be determined", "not sure", "no image", …) makes it uncertain.
    3. Else it is a no if it has a negation (``no``, ``not``, ``n't``, ``false``, …), a yes if it has ``yes``, ``correct``, ``true``
       or ``right``.
    4. Else it is uncertain.
    """
    text = answer.lower().replace("’", "'")
    first = FIRST_WORD.match(text)
    if first:
        return "yes" if first[1] == "yes" else "no"
    if UNCERTAIN.search(text):
        return "uncertain"
    if NO.search(text):
        return "no"
    return "yes" if YES.search(text) else "uncertain"


def rule_judge(record: Record, answer: str) -> str:
    """Compare what :func:`read_answer` reads with the record's ``gt_answer``.

    The leaderboard is judged by GPT-4, which reads the whole answer against ``gt_answer_details``: say which judge a number is
    from.
    """
    said = read_answer(answer)
    if said == "uncertain":
        return "unclear"
    return "correct" if (said == "yes") == (str(record["gt_answer"]) == "1") else "incorrect"


def read_verdict(text: str) -> int:
    """Return what a judge's text says as the official script reads it: 0 for ``incorrect`` in it, 1 for ``correct``, else 2."""
    letters = text.lower()
    if "incorrect" in letters:
        return WRONG
    return RIGHT if "correct" in letters else UNCLEAR
