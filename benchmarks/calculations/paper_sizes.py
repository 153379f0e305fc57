"""Parameters and operations of the models that the paper trains, from their configs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.experiments import REPOSITORY

PAPER = REPOSITORY / "configs" / "dtop_p" / "dclm_paper.yaml"
SIZES: Mapping[str, Path | None] = {
    "64e8a": None,
    **{name: REPOSITORY / "configs" / "sweeps" / "dtop_p" / f"{name}.yaml" for name in ("32e4a", "128e16a", "0.4b", "2.4b")},
}
"""Overlays of the paper's config; the first is the config itself."""
LENGTH = 2048


def paper_model(size: str, **options: Any) -> Any:
    """Return a module of the paper on the meta device, where nothing is computed or stored.

    Args:
        size: a key of ``SIZES``.
        options: arguments of the module that replace those of the configs.
    """
    import torch
    import yaml

    from lightning_modules import MoELanguageModule

    config = yaml.safe_load(PAPER.read_text())
    overlay = SIZES[size]
    changed = yaml.safe_load(overlay.read_text())["model"]["init_args"] if overlay else {}
    with torch.device("meta"):
        return MoELanguageModule(
            vocab_size=config["data"]["init_args"]["vocab_size"], **{**config["model"]["init_args"], **changed, **options}
        )


def paper_sizes(size: str, seed: int) -> Mapping[str, float]:
    """Return billions of parameters and of forward operations a token, when the target of experts is active.

    Args:
        size: a key of ``SIZES``.
        seed: of no consequence.
    """
    from lightning_modules.dtop_p.costs import forward_operations, parameter_counts

    module = paper_model(size)
    parameters = parameter_counts(module.decoder, module.target)
    operations = forward_operations(module.decoder, module.target, LENGTH)
    return {
        "total": parameters.total / 1e9,
        "active": parameters.active / 1e9,
        "embedding": parameters.embedding / 1e9,
        **{name: value / 1e9 for name, value in operations._asdict().items()},
        "operations": operations.total / 1e9,
    }
