"""``train.py --list``: every experiment with its first comment line. Imports nothing heavy."""

from collections.abc import Iterator
from pathlib import Path

from launcher.paths import CONFIGS, PROJECT

NOT_EXPERIMENTS = ("evaluations", "overlays", "sweeps")
"""``evaluations`` only test a model of the user's own, with ``train.py test``."""


def experiments() -> Iterator[Path]:
    """Yield the config file of every experiment, in order of their names."""
    for path in sorted(CONFIGS.glob("*/*.yaml")):
        if path.parent.name not in NOT_EXPERIMENTS:
            yield path


def description(path: Path) -> str:
    """Return the first comment line of a config."""
    with path.open() as file:
        return file.readline().lstrip("# ").strip()


def listing() -> str:
    """Return one line an experiment: its path and what it shows."""
    names = {path.relative_to(PROJECT).as_posix(): description(path) for path in experiments()}
    width = max(map(len, names), default=0)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in names.items())
