"""``python -m launcher.sizes``: the models of configs and their numbers of parameters, at no cost in memory."""

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch
from jsonargparse import Namespace
from lightning import LightningDataModule, LightningModule
from lightning.pytorch.cli import LightningArgumentParser

from launcher.arguments import read_config
from launcher.cli import instantiate_data
from launcher.errors import UserError, explain
from launcher.paths import CONFIGS, PROJECT
from launcher.quiet import quiet


def main(argv: Sequence[str]) -> int:
    """Print one line a config: its file, the class of its model and its number of parameters.

    Args:
        argv: config files; none takes every experiment at the scale of its paper.
    """
    quiet()
    for path in [Path(word).resolve() for word in argv] or paper_configs():
        try:
            model = meta_model(path)
        except Exception as error:
            message = str(error) if isinstance(error, UserError) else explain(error, None, running=False)
            if message is None:
                raise
            print(f"error: {path}: {message}", file=sys.stderr)
            return 2
        shown = str(path.relative_to(PROJECT) if path.is_relative_to(PROJECT) else path)
        print(f"{shown:<54}  {type(model).__name__:<20}  {parameters(model):>14,}", flush=True)
    return 0


def paper_configs() -> list[Path]:
    """Return the configs of the experiments at the scale of their papers."""
    return sorted(CONFIGS.glob("*/*_paper.yaml"))


def meta_model(path: Path) -> LightningModule:
    """Return the model of a config, with the sizes that its data dictate, on the meta device: weights with shapes and no values.

    Raises:
        UserError: if the config names no model or no data.
    """
    content = read_config(path)
    if missing := {"model", "data"} - content.keys():
        raise UserError(f"it names no {min(missing)}; give the config of an experiment, not an overlay")
    config = _parser().parse_object({key: content[key] for key in ("model", "data")})
    instantiate_data(_parser(), config)
    with torch.device("meta"):
        return _parser().instantiate(Namespace(model=config.model)).model


def parameters(model: torch.nn.Module) -> int:
    """Return how many numbers training may change."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


@cache
def _parser() -> LightningArgumentParser:
    parser = LightningArgumentParser(exit_on_error=False)
    parser.add_lightning_class_args(LightningModule, "model", subclass_mode=True)
    parser.add_lightning_class_args(LightningDataModule, "data", subclass_mode=True)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
