"""Refuse columns of a batch that do not belong together."""

from collections.abc import Sized


def check_same_length(**columns: Sized) -> None:
    """Refuse columns of unequal length.

    Raises:
        ValueError: names each column and its length.
    """
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{length} {name.replace('_', ' ')}" for name, length in lengths.items())
        raise ValueError(f"a batch has {listed}: each answer needs exactly one of each")


def check_texts(answers: Sized, name: str = "answers") -> None:
    """Refuse one text where a list of texts is meant: its letters would pass for answers.

    Raises:
        ValueError: names the argument.
    """
    if isinstance(answers, str):
        raise ValueError(f"{name} is one text, give a list of texts")
