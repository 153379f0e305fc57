"""One clear line instead of a traceback for what a user can mend."""

import argparse
import difflib
import importlib
import importlib.metadata
import inspect
import re
from typing import Any

REWORDED = {
    r"No supported gpu backend found": (
        "trainer.accelerator: torch finds no GPU here; leave out the overlay that asks for one, or add --trainer.accelerator=cpu"
    ),
    r"Repo id must be in the form .*: '(.+?)'": r"there is no folder \1",
}
"""What libraries say to a user, and what they mean."""


class UserError(Exception):
    """A mistake in the command, the config or the files; its text names the thing and the remedy."""


def explain(error: Exception, checkpoint: object, running: bool) -> str | None:
    """Return the one line that a user needs, or None if ``error`` is no mistake of the user.

    Args:
        error: what was raised.
        checkpoint: the checkpoint in use, if any.
        running: whether training has begun; from then on only a loss that is not finite is explained, else the traceback counts.
    """
    from lightning.pytorch.utilities.exceptions import MisconfigurationException

    if isinstance(error, argparse.ArgumentError):
        return parser_message(str(error))
    if checkpoint is not None and (message := checkpoint_message(checkpoint, error)):
        return message
    if isinstance(error, FloatingPointError):
        return _one_line(error)
    if running:
        return None
    if isinstance(error, ImportError):
        return missing_package(error)
    return raised_message(error) if isinstance(error, (ValueError, TypeError, OSError, MisconfigurationException)) else None


def missing_package(error: ImportError) -> str:
    """Say which package is missing, and which extra of the project brings it."""
    package = (error.name or "").split(".")[0]
    return f"{package} is not installed: {_install_hint(package)}" if package else _one_line(str(error))


def parser_message(message: str) -> str:
    """Shorten jsonargparse's report of a bad key or value to the key, what is wrong with it, and what is allowed."""
    if match := re.search(r"Group '([\w.]+)' does not accept option '([\w.]+)'", message):
        return _unknown_key(f"{match[1]}.{match[2]}")
    if match := re.match(r"(?:unrecognized arguments: --|Option ')([\w.]+)", message):
        return _unknown_key(match[1])
    key = match[1] if (match := re.search(r'Parser key "([^"]+)":', message)) else ""
    if match := re.search(r"No module named '([\w.]+)'", message):
        return f"{key}: {missing_package(ModuleNotFoundError(match[0], name=match[1]))}"
    if match := re.search(r"module '([\w.]+)' has no attribute '(\w+)'|No ([\w.]+) attribute (\w+)", message):
        module, name = match[1] or match[3], match[2] or match[4]
        return f"{key}: there is no class {module}.{name}{_suggest(name, _public_names(module))}"
    if match := re.search(r"class_path '([\w.]+)':\s+(?:.*\n\s+)?Option '([\w.]+)' is not accepted", message):
        return f"{key}: {match[1]} has no parameter '{match[2]}'{_suggest(match[2], _parameters(match[1]))}"
    if match := re.search(r"class_path '[\w.]+':\s+Parser key \"([\w.]+)\":([\s\S]+?)\n    - Expected", message):
        return f"{key}.init_args.{match[1]}: {_expectation(match[2]) or _one_line(match[2])}"
    if match := re.search(r"class_path '([\w.]+)':\s+(.+)", message):
        return f"{key}: {match[1]}: {match[2]}"
    if match := re.search(r"does not correspond to a subclass of (\w+)", message):
        return f"{key}: {_given(message)} is no {match[1]}"
    expected = _expectation(message)
    return f"{key}: {expected}" if expected else _one_line(message)


def raised_message(error: Exception) -> str:
    """Return what a constructor or a data module raised, out of the report that jsonargparse may have wrapped around it."""
    text = str(error)
    if text.startswith("Does not validate against any of the Union subtypes"):
        reasons = re.findall(r"^  - (?!Expected )(.+)$", text, flags=re.MULTILINE)
        text = reasons[0] if reasons else text
    for pattern, clearer in REWORDED.items():
        if match := re.search(pattern, text):
            return match.expand(clearer)
    return _one_line(text)


def checkpoint_message(path: object, error: Exception) -> str | None:
    """Explain why a checkpoint cannot be used, or return None if ``error`` is about something else."""
    text = str(error)
    if "Error(s) in loading state_dict" in text:
        return f"--ckpt_path: {path} belongs to another model or other hyperparameters ({_one_line(text, 160)})"
    if any(sign in text for sign in ("PytorchStreamReader", "Weights only load failed", "invalid load key", "Ran out of input")):
        return f"--ckpt_path: {path} is no readable checkpoint; use another one of its run folder"
    return None


def _expectation(message: str) -> str | None:
    found = re.findall(r"Expected an? (?!path but)(.+?)(?:\. Got value: .*)?$", message, flags=re.MULTILINE)
    if not found:
        return None
    return f"expected {' or '.join(dict.fromkeys(map(_plain_type, found)))}, got {_given(message)}"


def _plain_type(text: str) -> str:
    if match := re.fullmatch(r"<class '(?:[\w.]+\.)?(\w+)'>", text):
        return "null" if match[1] == "NoneType" else match[1]
    if match := re.fullmatch(r"typing\.Literal\[(.+)\]", text):
        return f"one of {match[1]}"
    return text


def _given(message: str) -> str:
    match = re.search(r"(?:Given|Got) value: (.+)", message)
    return f"'{match[1].strip()}'" if match else "something else"


def _unknown_key(key: str) -> str:
    head, _, tail = key.partition(".")
    if head == "trainer" and tail:
        from lightning import Trainer

        settings = [name for name in inspect.signature(Trainer.__init__).parameters if name != "self"]
        return f"unknown key '{key}'{_suggest(tail, settings)}"
    allowed = ["seed_everything", "model", "data", "trainer", "checkpoint", "resume", "progress", "run"]
    return f"unknown key '{key}'{_suggest(head, allowed) if head not in allowed else ''}"


def _suggest(word: str, allowed: list[str]) -> str:
    close = difflib.get_close_matches(word, allowed, n=1)
    return f"; did you mean '{close[0]}'?" if close else f"; allowed are {', '.join(allowed)}" if allowed else ""


def _parameters(class_path: str) -> list[str]:
    """Return the parameters of a class; one that passes ``**kwargs`` on has those of the class above it too."""
    module, _, name = class_path.rpartition(".")
    found: dict[str, None] = {}
    for base in getattr(importlib.import_module(module), name).__mro__:
        if "__init__" in vars(base):
            parameters = inspect.signature(base).parameters.values()
            found |= dict.fromkeys(p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))
            if all(p.kind != p.VAR_KEYWORD for p in parameters):
                break
    return list(found)


def _public_names(module: str) -> list[str]:
    return [name for name in dir(importlib.import_module(module)) if not name.startswith("_")]


def _install_hint(package: str) -> str:
    normalised = package.replace("_", "-").lower()
    for requirement in _requirements():
        required = re.split(r"[\s<>=!~;\[(]", requirement)[0].lower().replace("_", "-")
        extra = re.search(r"extra == ['\"](\w+)['\"]", requirement)
        if required == normalised and extra:
            return f"pip install 'leyden[{extra[1]}]'"
    return f"pip install {package}"


def _requirements() -> list[str]:
    try:
        return importlib.metadata.requires("leyden") or []
    except importlib.metadata.PackageNotFoundError:
        return []


def _one_line(text: Any, limit: int = 400) -> str:
    line = " ".join(str(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
