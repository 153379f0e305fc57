"""Result files: written whole, refused with one clear line when damaged."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

Content = TypeVar("Content")


def read_json(path: Path, build: Callable[[dict[str, Any]], Content]) -> Content | None:
    """Return what ``build`` makes of a JSON file, or None if there is no file.

    Raises:
        ValueError: if the file is damaged or holds something else.
    """
    if not path.exists():
        return None
    try:
        return build(json.loads(path.read_text()))
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a result file ({error}): restore or delete it") from error


def write_whole(path: Path, text: str) -> None:
    """Write a file under a temporary name and rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.part")
    temporary.write_text(text)
    temporary.replace(path)
