"""``python -m lightning_modules.tlvs.export CHECKPOINT OUT``: the vision-language model of a checkpoint as a safetensors file."""

import argparse
from pathlib import Path

import torch

from lightning_modules.tlvs.scene_weights import save_tiny_vlm
from lightning_modules.tlvs.tiny_vlm_module import SceneVLMModule


def export(checkpoint: Path, out: Path) -> None:
    """Write the model of a checkpoint of :class:`~lightning_modules.tlvs.tiny_vlm_module.SceneVLMModule`.

    Raises:
        ValueError: if the checkpoint is of another module.
    """
    content = torch.load(checkpoint, map_location="cpu", weights_only=True)
    settings = content.get("hyper_parameters", {})
    if "words" not in settings:
        raise ValueError(f"{checkpoint} is no checkpoint of SceneVLMModule: it holds no words")
    module = SceneVLMModule.load_from_checkpoint(checkpoint, map_location="cpu", weights_only=True)
    save_tiny_vlm(module.model, settings["words"], out)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Write the vision-language model of a checkpoint as a safetensors file.")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    export(arguments.checkpoint, arguments.out)


if __name__ == "__main__":
    main()
