"""Visual contrastive decoding: a second pass without the image says what the language alone would have said."""

import math

import torch
from torch import Tensor

from lightning_modules.tlvs.adapter import Batch, NullMode, VLMAdapter
from lightning_modules.tlvs.followed_response import FollowedResponse


def contrast(logits_BV: Tensor, blind_logits_BV: Tensor, weight: float = 1.0, cutoff: float = 0.1) -> Tensor:
    r"""Return the contrasted scores of the next token, ``[B, V]``.

    .. math::
        (1 + a) f - a f', \qquad -\infty \text{ where } f < \max f + \log b

    Args:
        logits_BV: f, with the image.
        blind_logits_BV: f', without it.
        weight: a.
        cutoff: b, in (0, 1].

    Raises:
        ValueError: if weight or cutoff are out of range.

    Source: Leng et al. 2024 (arXiv 2311.16922).
    """
    if weight < 0 or not 0 < cutoff <= 1:
        raise ValueError(f"contrast needs a weight of at least 0 and a cutoff in (0, 1], got {weight} and {cutoff}")
    scores_BV = (1 + weight) * logits_BV - weight * blind_logits_BV
    implausible_BV = logits_BV < logits_BV.amax(dim=-1, keepdim=True) + math.log(cutoff)
    return scores_BV.masked_fill(implausible_BV, -torch.inf)


class ContrastiveLogitsProcessor:
    """Contrast each step with a run of the same response without the image, which keeps its own cache.

    Pass it to the ``generate`` of an adapter, or in a list to that of a model of transformers; greedy decoding or sampling, no
    beams. Use a new one for each batch.

    Args:
        adapter: the model.
        batch: the prompts.
        weight: a of :func:`contrast`.
        cutoff: b of :func:`contrast`.
        null_mode: how the image is left out.
    """

    def __init__(
        self, adapter: VLMAdapter, batch: Batch, weight: float = 1.0, cutoff: float = 0.1, null_mode: NullMode = "drop"
    ) -> None:
        self.blind = adapter.decode(adapter.without_image(batch, null_mode))
        self.weight, self.cutoff = weight, cutoff
        self._response = FollowedResponse()

    def __call__(self, tokens_BT: Tensor, logits_BV: Tensor) -> Tensor:
        """Return the scores to choose the next token from.

        Raises:
            ValueError: if the tokens are not those of the last step and one more.
        """
        blind_logits_BV = self.blind.next_logits(self._response.newest(tokens_BT))
        return contrast(logits_BV, blind_logits_BV, self.weight, self.cutoff)
