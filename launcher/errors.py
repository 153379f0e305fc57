"""One clear line instead of a traceback for what a user can mend."""

import argparse
import difflib
import importlib
import importlib.metadata
import inspect
import re
from typing import Any


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
    if message := checkpoint_message(checkpoint, error):
        return message
    if isinstance(error, FloatingPointError):
        return _one_line(error)
    if running:
        return None
    if isinstance(error, ImportError):
        return missing_package(error)
    return _one_line(error) if isinstance(error, (ValueError, TypeError, OSError, MisconfigurationException)) else None


def missing_package(error: ImportError) -> str:
    """Say which package is missing, and which extra of the project brings it."""
    package = (error.name or "").split(".")[0]
    return f"{package} is not installed: {_install_hint(package)}" if package else _one_line(str(error))


def parser_message(message: str) -> str:
    """Shorten jsonargparse's report of a bad key or value to the key, what is wrong with it, and what is allowed."""
    if match := re.search(r'[Kk]ey [\'"]([\w.+]+)[\'"] is not expected', message) or re.search(
        r"unrecognized arguments: --([\w.+]+)", message
    ):
        return f"unknown key '{match[1]}'{_suggest_trainer_key(match[1])}"
    key = match[1] if (match := re.search(r'Parser key "([^"]+)":', message)) else ""
    if match := re.search(r"No module named '([\w.]+)'", message):
        return f"{key}: {missing_package(ModuleNotFoundError(match[0], name=match[1]))}"
    if match := re.search(r"module '([\w.]+)' has no attribute '(\w+)'", message):
        return f"{key}: there is no class {match[1]}.{match[2]}{_suggest(match[2], _public_names(match[1]))}"
    if match := re.search(r"class_path '([\w.]+)':\s+(?:.*\n\s+)?Option '([\w.]+)' is not accepted", message):
        return f"{key}: {match[1]} has no parameter '{match[2]}'{_suggest(match[2], _parameters(match[1]))}"
    if match := re.search(r"class_path '([\w.]+)':\s+Parser key \"([\w.]+)\":([\s\S]+?)\n    - Expected", message):
        return f"{key}.init_args.{match[2]}: {_expectation(match[3]) or _one_line(match[3])}"
    if match := re.search(r"class_path '([\w.]+)':\s+(.+)", message):
        return f"{key}: {match[1]}: {match[2]}"
    if match := re.search(r"does not correspond to a subclass of (\w+)", message):
        return f"{key}: {_given(message)} is no {match[1]}"
    if expected := _expectation(message):
        return f"{key}: {expected}"
    return _one_line(message)


def checkpoint_message(path: object, error: Exception) -> str | None:
    """Explain why a checkpoint cannot be used, or return None if ``error`` is about something else."""
    text = str(error)
    if "Error(s) in loading state_dict" in text:
        return f"--ckpt_path: {path} belongs to another model or other hyperparameters ({_one_line(text, 160)})"
    if any(
        sign in text for sign in ("PytorchStreamReader", "Weights only load failed", "invalid load key", "Ran out of input", "EOF")
    ):
        return f"--ckpt_path: {path} is no readable checkpoint; use another one of its run folder"
    return None


def _expectation(message: str) -> str | None:
    expected = [name.rsplit(".", 1)[-1] for name in re.findall(r"Expected an? <class '([\w.]+)'>", message)]
    if not expected:
        return None
    allowed = " or ".join("null" if name == "NoneType" else name for name in expected)
    return f"expected {allowed}, got {_given(message)}"


def _given(message: str) -> str:
    match = re.search(r"(?:Given|Got) value: (.+)", message)
    return f"'{match[1].strip()}'" if match else "something else"


def _suggest(word: str, allowed: list[str]) -> str:
    close = difflib.get_close_matches(word, allowed, n=1)
    return f"; did you mean '{close[0]}'?" if close else f"; allowed are {', '.join(allowed)}" if allowed else ""


def _suggest_trainer_key(key: str) -> str:
    head, _, tail = key.partition(".")
    if head == "trainer":
        from lightning import Trainer

        return _suggest(tail, [name for name in inspect.signature(Trainer.__init__).parameters if name != "self"])
    return _suggest(head, ["seed_everything", "model", "data", "trainer", "checkpoint", "resume", "run"])


def _parameters(class_path: str) -> list[str]:
    module, _, name = class_path.rpartition(".")
    return [p for p in inspect.signature(getattr(importlib.import_module(module), name)).parameters if p != "self"]


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
