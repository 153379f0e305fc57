"""The tiny vision-language model in one file: weights, sizes and vocabulary (plain torch)."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from lightning_modules.tlvs.tiny_vlm import TinyVLM

FORMAT = "leyden.tiny_vlm.1"


def save_tiny_vlm(model: TinyVLM, words: Sequence[str], path: str | Path) -> None:
    """Write a model and its vocabulary to a safetensors file."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    weights = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    save_file(weights, path, {"format": FORMAT, "config": json.dumps(model.config), "words": json.dumps(list(words))})


def load_tiny_vlm(path: str | Path, device: str | torch.device = "cpu") -> tuple[TinyVLM, list[str]]:
    """Read a model, in evaluation mode, and its vocabulary.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it holds something else.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path} is missing: write it with python -m lightning_modules.tlvs.export CHECKPOINT {path}")
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            told = file.metadata() or {}
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 not a dict
    except SafetensorError as error:
        raise ValueError(f"{path} is no safetensors file ({error}): write it anew") from error
    if told.get("format") != FORMAT:
        raise ValueError(
            f"{path} has the format {told.get('format')!r}, expected {FORMAT!r}: write it with lightning_modules.tlvs.export"
        )
    model = TinyVLM(**json.loads(told["config"]))
    model.load_state_dict(weights)
    return model.to(device).eval(), json.loads(told["words"])
