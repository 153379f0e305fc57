"""The small training of steering vectors; the model stays as it is."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lightning_modules.tlvs.adapter import Batch, NullMode, VLMAdapter
from lightning_modules.tlvs.artifact import SteeringArtifact
from lightning_modules.tlvs.gate import log_sensitivity
from lightning_modules.tlvs.sensitivity import visual_sensitivity
from lightning_modules.tlvs.steering import steered


@dataclass(frozen=True)
class StepSum:
    """A sum over some steps, and how many they are: means over processes with unequal shares need both."""

    total: Tensor
    count: Tensor

    @property
    def mean(self) -> Tensor:
        """The mean, 0 if there are no steps."""
        return self.total / self.count.clamp_min(1)


def caption_losses(
    adapter: VLMAdapter, batch: Batch, artifact: SteeringArtifact, null_mode: NullMode = "drop"
) -> dict[str, StepSum]:
    r"""Return what steering with the vectors costs on captions.

    .. math::
        L_\text{sensitive} = \operatorname{mean}_{s_t > \text{median}} -\log p_\text{steered}(y_t), \qquad
        L_\text{other} = \operatorname{mean}_{s_t \le \text{median}} KL(p_t \,\|\, p_{\text{steered}, t})

    The median is the gate's, of the calibration set.

    Args:
        adapter: the model.
        batch: images with captions.
        artifact: the vectors, which get the gradients, and the gate.
        null_mode: how the image is left out.

    Returns:
        ``sensitive`` and ``other``, the sums of the two losses.
    """
    mask_BT = adapter.response_mask(batch)
    targets_S = adapter.targets(batch)[mask_BT]
    with torch.no_grad():
        logits_SV = adapter.logits(batch)[mask_BT]
        blind = adapter.without_image(batch, null_mode)
        blind_logits_SV = adapter.logits(blind)[adapter.response_mask(blind)]
        sensitive_S = log_sensitivity(visual_sensitivity(logits_SV, blind_logits_SV)) > artifact.gate.threshold.to(logits_SV.device)
    log_steered_SV = steered_logits(adapter, batch, artifact).float().log_softmax(dim=-1)
    likelihood_S = log_steered_SV.gather(-1, targets_S.unsqueeze(-1)).squeeze(-1)
    log_p_SV = logits_SV.float().log_softmax(dim=-1)
    divergence_S = (log_p_SV.exp() * (log_p_SV - log_steered_SV)).sum(dim=-1)
    return {"sensitive": _sum(-likelihood_S, sensitive_S), "other": _sum(divergence_S, ~sensitive_S)}


def answer_loss(adapter: VLMAdapter, batch: Batch, artifact: SteeringArtifact) -> StepSum:
    r"""Return the sum of :math:`-\log p_\text{steered}(\text{answer})` over the tokens of the answers to questions."""
    targets_S = adapter.targets(batch)[adapter.response_mask(batch)]
    logits_SV = steered_logits(adapter, batch, artifact)
    total = torch.nn.functional.cross_entropy(logits_SV.float(), targets_S, reduction="sum")
    return StepSum(total, torch.tensor(len(targets_S), device=total.device))


def steered_logits(adapter: VLMAdapter, batch: Batch, artifact: SteeringArtifact) -> Tensor:
    """Return the logits of a batch's given responses under steering, ``[S, V]``."""
    mask_BT = adapter.response_mask(batch)
    with steered(adapter, artifact) as active, active.positions.given(mask_BT):
        return adapter.logits(batch)[mask_BT]


def _sum(values_S: Tensor, chosen_S: Tensor) -> StepSum:
    return StepSum((values_S * chosen_S).sum(), chosen_S.sum())
