"""Find what a page prints for its reader to use: commands, options, Python code and settings."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

FENCE = re.compile(r"```(\w*)")
SETTINGS = re.compile(r"(#.*\.yaml\s*\n)?\w+:\s*\n")
INLINE = re.compile(r"`([^`\n]+)`")
OPTION = re.compile(r"--[a-z_]+(\.\w+)+")

Kind = Literal["command", "option", "python", "script", "settings", "text"]


@dataclass(frozen=True)
class Printed:
    """One thing that a page prints.

    Attributes:
        kind: a shell command, an option of ``train.py``, a block of Python or YAML, a whole shell script, or any other block.
        text: what is printed; of a command its words, quoted for a shell, without comments.
        page: the page.
        line: number of its first line.
    """

    kind: Kind
    text: str
    page: Path
    line: int

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text)


def printed(page: Path, programs: Sequence[str]) -> Iterator[Printed]:
    """Yield what a page prints, in order.

    A block is indented by four spaces or fenced. It holds commands if its first word is one of ``programs``; inline code is a
    command if it begins with one of them and goes on.
    """
    for line, language, block in _blocks(page.read_text().splitlines()):
        if language == "prose":
            for match in INLINE.finditer(block):
                program, _, rest = match[1].partition(" ")
                if program in programs and rest:
                    yield Printed("command", shlex.join(shlex.split(match[1])), page, line)
                elif OPTION.match(match[1]):
                    yield Printed("option", match[1], page, line)
        elif language in ("python", "yaml"):
            yield Printed("python" if language == "python" else "settings", block, page, line)
        elif block.startswith("#!"):
            yield Printed("script", block, page, line)
            yield from _commands(block, page, line)
        elif language in ("bash", "sh", "shell") or block.split()[0] in programs:
            yield from _commands(block, page, line)
        elif SETTINGS.match(block):
            yield Printed("settings", block, page, line)
        elif language not in ("bibtex", "markdown"):
            yield Printed("text", block, page, line)


def _commands(block: str, page: Path, line: int) -> Iterator[Printed]:
    """Yield the commands of a block: one a line, several where ``&&`` joins them, one where a backslash goes on."""
    begun = ""
    for number, text in enumerate(block.splitlines(), start=line):
        begun += text.removesuffix("\\")
        if text.endswith("\\"):
            continue
        words = shlex.split(begun, comments=True)
        begun = ""
        while words:
            end = words.index("&&") if "&&" in words else len(words)
            yield Printed("command", shlex.join(words[:end]), page, number)
            words = words[end + 1 :]


def _blocks(lines: Sequence[str]) -> Iterator[tuple[int, str, str]]:
    """Yield the number of its first line, its language and its text for each block, and each line of prose as ``prose``.

    An indented block begins after an empty line; the lines of a list that are indented go on from the line before.
    """
    position = 0
    while position < len(lines):
        begin, line = position, lines[position]
        position += 1
        if fence := FENCE.match(line):
            while not lines[position].startswith("```"):
                position += 1
            yield begin + 2, fence[1], "\n".join(lines[begin + 1 : position])
            position += 1
        elif line.startswith("    ") and (begin == 0 or not lines[begin - 1].strip()):
            while position < len(lines) and (lines[position].startswith("    ") or not lines[position].strip()):
                position += 1
            yield begin + 1, "", "\n".join(text[4:] for text in lines[begin:position]).strip("\n")
        else:
            yield begin + 1, "prose", line
