"""What happens at each step of a response: does it depend on the image, is the model sure, how strongly would it be steered."""

from typing import NamedTuple

import torch
from torch import Tensor

from lightning_modules.tlvs.adapter import Batch, NullMode, VLMAdapter, response_steps
from lightning_modules.tlvs.artifact import SteeringArtifact
from lightning_modules.tlvs.sensitivity import entropy, visual_sensitivity


class ResponseTrace(NamedTuple):
    """One response, step by step.

    Attributes:
        tokens: ids, ``[n]``.
        sensitivity: visual sensitivity, nats, ``[n]``.
        entropy: of the next token, nats, ``[n]``.
        strength: g of the gate, ``[n]``.
    """

    tokens: Tensor
    sensitivity: Tensor
    entropy: Tensor
    strength: Tensor


@torch.no_grad()
def trace_responses(
    adapter: VLMAdapter, batch: Batch, artifact: SteeringArtifact, null_mode: NullMode = "drop"
) -> list[ResponseTrace]:
    """Run a model over given responses, without steering.

    Args:
        adapter: the model.
        batch: prompts with their responses.
        artifact: whose gate is asked.
        null_mode: how the image is left out.

    Returns:
        A trace of each response that has tokens, in their order.
    """
    layer = adapter.decoder_layers()[artifact.gate_layer]
    logits_SV, states_1Sd = response_steps(adapter, batch, [layer])
    blind_logits_SV, _ = response_steps(adapter, adapter.without_image(batch, null_mode), [layer])
    mask_BT = adapter.response_mask(batch)
    tokens_S = adapter.targets(batch)[mask_BT]
    values = (
        tokens_S,
        visual_sensitivity(logits_SV, blind_logits_SV, targets_T=tokens_S),
        entropy(logits_SV),
        artifact.gate.to(states_1Sd.device)(states_1Sd[0], artifact.gate_kind),
    )
    lengths = mask_BT.sum(dim=1).tolist()
    parts = zip(*(value.cpu().split(lengths) for value in values), strict=True)
    return [ResponseTrace(*part) for part in parts if len(part[0])]
