"""Vision-language models of transformers (the extra ``leyden[llm]``), such as Llava and Qwen2-VL, as steering sees them."""

import hashlib
import inspect
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lightning_modules.tlvs.adapter import Batch, LogitsProcessor, NullMode, UnsupportedModelError
from lightning_modules.tlvs.diffused_image import diffused

LAYER_PATHS = (
    "model.language_model.layers",
    "language_model.model.layers",
    "model.text_model.layers",
    "language_model.layers",
    "model.layers",
)
IMAGE_INPUTS = ("pixel_values", "image_grid_thw", "image_sizes")
IGNORED_LABEL = -100


class HFVLMAdapter:
    """A model of transformers that takes ``input_ids``, ``attention_mask``, ``pixel_values`` and what else its processor made.

    Batches are the processor's, moved to the model's device; prompts to be answered are padded at the left. Given responses are
    marked by ``labels``, which are -100 elsewhere. Further entries that the model does not take are left alone.

    Args:
        model: the model.
        layers_path: where its decoder layers are, such as ``model.language_model.layers``; None tries the known places.

    Raises:
        UnsupportedModelError: if the decoder layers or the image's placeholder cannot be found.
    """

    def __init__(self, model: nn.Module, layers_path: str | None = None) -> None:
        self.model: Any = model.eval().requires_grad_(False)
        self._layers = _decoder_layers(model, (layers_path,) if layers_path else LAYER_PATHS)
        config: Any = model.config
        named = [getattr(config, name, None) for name in ("image_token_id", "image_token_index")]
        self.placeholder = next((token for token in named if token is not None), None)
        if self.placeholder is None:
            raise UnsupportedModelError(f"the config of {type(model).__name__} has no image_token_id: does it read images?")
        self._around = [getattr(config, name, None) for name in ("vision_start_token_id", "vision_end_token_id")]
        self._inputs = set(inspect.signature(model.forward).parameters)

    @classmethod
    def from_pretrained(cls, folder: str | Path, dtype: str = "bfloat16", layers_path: str | None = None) -> "HFVLMAdapter":
        """Load the model of a folder, or of a name on the hub.

        Raises:
            ImportError: without transformers.
        """
        try:
            from transformers import AutoModelForImageTextToText
        except ImportError as error:
            raise ImportError("models of transformers need it: pip install 'leyden[llm]'") from error
        return cls(AutoModelForImageTextToText.from_pretrained(folder, dtype=getattr(torch, dtype)), layers_path)

    def decoder_layers(self) -> Sequence[nn.Module]:
        return list(self._layers)

    def mlp_layers(self) -> Sequence[nn.Module]:
        """Return the feed-forward part of each decoder layer.

        Raises:
            UnsupportedModelError: if a layer has none called ``mlp``.
        """
        parts = [part for layer in self._layers if isinstance(part := getattr(layer, "mlp", None), nn.Module)]
        if len(parts) < len(self._layers):
            raise UnsupportedModelError(f"the decoder layers of {type(self.model).__name__} have no part called mlp")
        return parts

    def logits(self, batch: Batch) -> Tensor:
        return self.model(**self._model_inputs(batch), use_cache=False).logits

    def without_image(self, batch: Batch, null_mode: NullMode = "drop") -> Batch:
        """Return the batch with the placeholders and the pixels taken out, or with images that are nearly all noise.

        Args:
            batch: the batch.
            null_mode: ``drop`` or ``noise``, the image at step 500 of 1000 of a diffusion.

        Raises:
            ValueError: for ``mask``.
        """
        if null_mode == "noise":
            return {**batch, "pixel_values": diffused(batch["pixel_values"])}
        if null_mode != "drop":
            raise ValueError(f"null_mode={null_mode!r} is not there for models of transformers: use drop or noise")
        ids_BT = batch["input_ids"]
        text_BT = batch["attention_mask"].bool() & (ids_BT != self.placeholder)
        for token in self._around:
            if token is not None:
                text_BT &= ids_BT != token
        kept = {name: value for name, value in batch.items() if name not in (*IMAGE_INPUTS, "mm_token_type_ids", "token_type_ids")}
        # a stable sort by "is kept" moves what is left out to the left, where padding stands
        order_BT = text_BT.to(torch.int8).sort(dim=1, stable=True).indices
        start = int(ids_BT.shape[1] - text_BT.sum(dim=1).max())
        for name, filler in (("input_ids", ids_BT.new_tensor(self._padding)), ("labels", ids_BT.new_tensor(IGNORED_LABEL))):
            if name in kept:
                kept[name] = torch.where(text_BT, kept[name], filler).gather(1, order_BT)[:, start:]
        kept["attention_mask"] = text_BT.long().gather(1, order_BT)[:, start:]
        return kept

    def response_mask(self, batch: Batch) -> Tensor:
        if "labels" not in batch:
            return torch.zeros_like(batch["input_ids"], dtype=torch.bool)
        mask_BT = torch.zeros_like(batch["labels"], dtype=torch.bool)
        mask_BT[:, :-1] = batch["labels"][:, 1:] != IGNORED_LABEL
        return mask_BT

    def targets(self, batch: Batch) -> Tensor:
        return batch["input_ids"].roll(-1, dims=1)

    def generate(self, batch: Batch, max_new_tokens: int, processor: LogitsProcessor | None = None, **options: Any) -> Tensor:
        """Return the responses without their prompts; ``options`` are those of transformers' ``generate``, which is greedy here."""
        inputs = self._model_inputs(batch)
        inputs.pop("labels", None)
        if processor is not None:
            options = {**options, "logits_processor": [processor]}
        generated_BT = self.model.generate(**inputs, **{"max_new_tokens": max_new_tokens, "do_sample": False, **options})
        return generated_BT[:, batch["input_ids"].shape[1] :]

    def decode(self, batch: Batch) -> "HFDecoding":
        return HFDecoding(self.model, self._model_inputs(batch))

    def identity(self) -> dict[str, str]:
        config = self.model.config
        described = {key: value for key, value in config.to_dict().items() if key not in ("transformers_version", "dtype")}
        digest = hashlib.sha256(json.dumps(described, sort_keys=True, default=str).encode()).hexdigest()
        return {
            "model": type(self.model).__name__,
            "width": str(config.get_text_config().hidden_size),
            "layers": str(len(self._layers)),
            "config": digest[:16],
        }

    @property
    def _padding(self) -> int:
        padding = getattr(self.model.config.get_text_config(), "pad_token_id", None)
        return 0 if padding is None else padding

    def _model_inputs(self, batch: Batch) -> dict[str, Any]:
        return {name: value for name, value in batch.items() if name in self._inputs}


class HFDecoding:
    """A response that is decoded step by step beside another one of the same model.

    Args:
        model: the model.
        inputs: its inputs for the prompts.
    """

    def __init__(self, model: Any, inputs: dict[str, Any]) -> None:
        from transformers import DynamicCache

        self.model, self.inputs = model, {name: value for name, value in inputs.items() if name != "labels"}
        self._cache_name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
        self._cache = DynamicCache()
        self._mask_BT = inputs["attention_mask"]
        self._own_places = hasattr(model.model, "rope_deltas")  # Qwen's places of the parts of an image
        self._offset_B1: Tensor | None = None

    @torch.no_grad()
    def next_logits(self, tokens_B: Tensor | None = None) -> Tensor:
        """Append tokens, None at the start, and return the logits of the next ones, ``[B, V]``."""
        inputs = self.inputs
        if tokens_B is not None:
            self._mask_BT = torch.cat([self._mask_BT, torch.ones_like(self._mask_BT[:, :1])], dim=1)
            inputs = {"input_ids": tokens_B.unsqueeze(1)}
        positions_BT = (self._mask_BT.cumsum(dim=1) - 1).clamp_min(0)[:, -inputs["input_ids"].shape[1] :]
        inputs = {**inputs, "attention_mask": self._mask_BT, self._cache_name: self._cache, "use_cache": True}
        if self._offset_B1 is not None:
            inputs["position_ids"] = (positions_BT + self._offset_B1).expand(3, -1, -1)
        elif "pixel_values" not in inputs or not self._own_places:
            inputs["position_ids"] = positions_BT
        inner = self.model.model
        kept = getattr(inner, "rope_deltas", None)
        logits_BTV = self.model(**inputs).logits
        if self._own_places:
            # such a model remembers the offset of one prompt: the response beside this one needs its own back
            if "pixel_values" in inputs:
                self._offset_B1 = inner.rope_deltas
            inner.rope_deltas = kept
        return logits_BTV[:, -1]


def _decoder_layers(model: nn.Module, paths: Sequence[str]) -> nn.ModuleList:
    for path in paths:
        found: Any = model
        for name in path.split("."):
            found = getattr(found, name, None)
        if isinstance(found, nn.ModuleList) and len(found):
            return found
    raise UnsupportedModelError(
        f"the decoder layers of {type(model).__name__} are not at {', '.join(paths)}: give layers_path, where they are in the model"
    )
