"""The tiny model of scenes, as steering sees it."""

import hashlib
import json
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lightning_modules.tlvs.adapter import Batch, LogitsProcessor, NullMode
from lightning_modules.tlvs.diffused_image import diffused
from lightning_modules.tlvs.tiny_vlm import KeyValueCache, TinyVLM, response_mask


class TinyVLMAdapter:
    """Batches are those of scenes: ``input_ids`` with padding behind, ``prompt_length``, ``pixels`` and, if given, ``no_image``.

    Prompts of a batch that is to be answered have one length.

    Args:
        model: the model, which is frozen.
    """

    def __init__(self, model: TinyVLM) -> None:
        self.model = model.eval().requires_grad_(False)

    def decoder_layers(self) -> Sequence[nn.Module]:
        return list(self.model.blocks)

    def mlp_layers(self) -> Sequence[nn.Module]:
        return [block.feed_forward for block in self.model.blocks]  # type: ignore[misc]

    def logits(self, batch: Batch) -> Tensor:
        return self.model(batch["input_ids"], batch.get("pixels"), batch.get("no_image"))

    def without_image(self, batch: Batch, null_mode: NullMode = "drop") -> Batch:
        """Return the batch without visual tokens (``drop``), with tokens that no word sees (``mask``), or with noisy images."""
        if null_mode == "noise":
            return {**batch, "pixels": diffused(batch["pixels"])}
        if null_mode == "mask":
            return {**batch, "no_image": torch.ones_like(batch["prompt_length"], dtype=torch.bool)}
        return {**batch, "pixels": None}

    def response_mask(self, batch: Batch) -> Tensor:
        return response_mask(batch["input_ids"], batch["prompt_length"], self.model.pad_id)

    def targets(self, batch: Batch) -> Tensor:
        return batch["input_ids"].roll(-1, dims=1)

    def generate(self, batch: Batch, max_new_tokens: int, processor: LogitsProcessor | None = None) -> Tensor:
        return self.model.generate(self._prompts(batch), batch.get("pixels"), max_new_tokens, processor, batch.get("no_image"))

    def decode(self, batch: Batch) -> "TinyVLMDecoding":
        return TinyVLMDecoding(self.model, self._prompts(batch), batch.get("pixels"), batch.get("no_image"))

    def identity(self) -> dict[str, str]:
        described = json.dumps(self.model.config, sort_keys=True)
        weights = hashlib.sha256()
        for name, value in sorted(self.model.state_dict().items()):
            weights.update(name.encode() + value.detach().cpu().numpy().tobytes())
        return {
            "model": type(self.model).__name__,
            "width": str(self.model.config["d_model"]),
            "layers": str(len(self.model.blocks)),
            "config": hashlib.sha256(described.encode()).hexdigest()[:16],
            "weights": weights.hexdigest()[:16],
        }

    def _prompts(self, batch: Batch) -> Tensor:
        """Return the prompts, ``[B, T]``.

        Raises:
            ValueError: if their lengths differ.
        """
        lengths_B = batch["prompt_length"]
        if (lengths_B != lengths_B[0]).any():
            raise ValueError("the prompts of a batch must have one length: ask captions and questions in batches of their own")
        return batch["input_ids"][:, : int(lengths_B[0])]


class TinyVLMDecoding:
    """A response that is decoded step by step with its own cache.

    Args:
        model: the model.
        prompts_BT: prompts of one length.
        pixels: images, or None.
        no_image: True where the words do not see them.
    """

    def __init__(self, model: TinyVLM, prompts_BT: Tensor, pixels: Tensor | None, no_image: Tensor | None) -> None:
        self.model, self.prompts_BT, self.pixels, self.no_image = model, prompts_BT, pixels, no_image
        self._cache = KeyValueCache()

    @torch.no_grad()
    def next_logits(self, tokens_B: Tensor | None = None) -> Tensor:
        """Append tokens, None at the start, and return the logits of the next ones, ``[B, V]``."""
        if tokens_B is None:
            return self.model(self.prompts_BT, self.pixels, self.no_image, self._cache)[:, -1]
        return self.model(tokens_B.unsqueeze(1), cache=self._cache)[:, -1]
