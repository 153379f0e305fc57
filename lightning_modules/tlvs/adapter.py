"""What steering asks of a vision-language model, whatever its architecture."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

NullMode = Literal["drop", "mask", "noise"]
Batch = dict[str, Any]
LogitsProcessor = Callable[[Tensor, Tensor], Tensor]
"""From the tokens so far ``[B, T]`` and the logits of the next one ``[B, V]`` to the logits to choose from."""


class UnsupportedModelError(ValueError):
    """A model whose parts are not where they are looked for."""


class Decoding(Protocol):
    """A response that is decoded step by step with its own cache."""

    def next_logits(self, tokens_B: Tensor | None = None) -> Tensor:
        """Append tokens, None at the start, and return the logits of the next ones, ``[B, V]``."""


class VLMAdapter(Protocol):
    """A frozen vision-language model and how its batches are read.

    Text positions T are the last positions of whatever the decoder layers see, so the two are aligned at the right.
    """

    @property
    def model(self) -> nn.Module:
        """The model; the first argument of its ``forward`` is, or is called, ``input_ids``."""

    def decoder_layers(self) -> Sequence[nn.Module]:
        """Return the decoder layers, each of which returns the residual stream ``[B, P, d]``, alone or first in a tuple."""

    def mlp_layers(self) -> Sequence[nn.Module]:
        """Return the feed-forward part of each decoder layer, which returns ``[B, P, d]``."""

    def logits(self, batch: Batch) -> Tensor:
        """Return the logits of one teacher-forced pass, ``[B, T, V]``."""

    def without_image(self, batch: Batch, null_mode: NullMode = "drop") -> Batch:
        """Return the batch with the same text and no image."""

    def response_mask(self, batch: Batch) -> Tensor:
        """Return where the next token belongs to the response, bool ``[B, T]``."""

    def targets(self, batch: Batch) -> Tensor:
        """Return the next token of each text position, ``[B, T]``; any number where there is none."""

    def generate(self, batch: Batch, max_new_tokens: int, processor: LogitsProcessor | None = None) -> Tensor:
        """Return greedily decoded responses, ``[B, up to max_new_tokens]``, padded behind their end."""

    def decode(self, batch: Batch) -> Decoding:
        """Start a response to the batch's prompts."""

    def identity(self) -> dict[str, str]:
        """Return what a steering artifact must have been made with: name, width and number of layers, a hash of the config."""


def hidden_state(output: Any) -> Tensor:
    """Return the residual stream of what a decoder layer returned."""
    return output if isinstance(output, Tensor) else output[0]


def with_hidden_state(output: Any, state: Tensor) -> Any:
    """Return a layer's output with another residual stream."""
    return state if isinstance(output, Tensor) else (state, *output[1:])


@contextmanager
def captured(layers: Sequence[nn.Module]) -> Iterator[list[Tensor]]:
    """Within the context, keep what each layer returned last, ``[B, P, d]``."""
    states = [torch.empty(0)] * len(layers)

    def keep(number: int) -> Callable[..., None]:
        def hook(module: nn.Module, arguments: Any, output: Any) -> None:
            states[number] = hidden_state(output)

        return hook

    handles = [layer.register_forward_hook(keep(number)) for number, layer in enumerate(layers)]
    try:
        yield states
    finally:
        for handle in handles:
            handle.remove()


def response_steps(adapter: VLMAdapter, batch: Batch, layers: Sequence[nn.Module]) -> tuple[Tensor, Tensor]:
    """Run the model on a batch with its responses given.

    Returns:
        Of each step that predicts a token of a response, in the order of the batch: the logits ``[S, V]`` and the states of the
        layers ``[L, S, d]``.
    """
    with captured(layers) as states:
        logits_BTV = adapter.logits(batch)
    mask_BT = adapter.response_mask(batch)
    text = mask_BT.shape[1]
    return logits_BTV[mask_BT], torch.stack([state[:, -text:][mask_BT] for state in states])
