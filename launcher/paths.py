"""Where the project keeps its configs."""

from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
CONFIGS = PROJECT / "configs"
DEFAULTS = CONFIGS / "defaults.yaml"
