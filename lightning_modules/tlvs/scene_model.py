"""The trained model of scenes: the one that comes with Leyden, or a user's own (plain torch)."""

from collections.abc import Sequence
from pathlib import Path

import torch

from lightning_modules.finished_runs import find_checkpoint
from lightning_modules.tlvs.scene_weights import load_tiny_vlm
from lightning_modules.tlvs.tiny_vlm import TinyVLM

OURS = Path(__file__).with_name("scene_vlm.safetensors")
"""Trained by ``configs/tlvs/scenes_vlm.yaml``."""


def scene_model(words: Sequence[str], weights: str | None = None) -> TinyVLM:
    """Return a trained model, in evaluation mode.

    Args:
        words: vocabulary of the data.
        weights: a safetensors file, a checkpoint or run folder of ``configs/tlvs/scenes_vlm.yaml``, or None for ours.

    Raises:
        FileNotFoundError: if there are no such weights.
        ValueError: if they hold something else, or were trained with other words.
    """
    if weights is None or Path(weights).suffix == ".safetensors":
        path = OURS if weights is None else Path(weights)
        model, own_words = load_tiny_vlm(path)
    else:
        path = find_checkpoint(Path(weights), "weights", "configs/tlvs")
        model, own_words = _from_checkpoint(path)
    if list(words) != list(own_words):
        raise ValueError(f"weights: {path} was trained with other words than those of the data: train it on the same scenes")
    return model.eval()


def _from_checkpoint(path: Path) -> tuple[TinyVLM, list[str]]:
    content = torch.load(path, map_location="cpu", weights_only=True)
    settings = content.get("hyper_parameters", {})
    if "words" not in settings:
        raise ValueError(f"weights: {path} is no checkpoint of SceneVLMModule: give a run of configs/tlvs/scenes_vlm.yaml")
    words = list(settings["words"])
    sizes = {name: settings[name] for name in ("d_model", "num_layers", "num_heads", "max_length")}
    model = TinyVLM(len(words), **sizes, pad_id=words.index("<pad>"), eos_id=words.index("<eos>"))
    own = {name.removeprefix("model."): value for name, value in content["state_dict"].items() if name.startswith("model.")}
    model.load_state_dict(own)
    return model, words
