"""Steering by the true sensitivity and entropy of each step, for study: what the gate loses by predicting them (plain torch).

Legend: B batch, T tokens so far, V vocabulary.
"""

from torch import Tensor

from lightning_modules.tlvs.adapter import Batch, NullMode, VLMAdapter
from lightning_modules.tlvs.artifact import SteeringArtifact
from lightning_modules.tlvs.followed_response import FollowedResponse
from lightning_modules.tlvs.gate import log_sensitivity
from lightning_modules.tlvs.sensitivity import entropy, visual_sensitivity
from lightning_modules.tlvs.steering import steered


class ExactSteering:
    """Choose each token by a steered run of the same response, whose strength two runs without steering tell.

    Pass it to the ``generate`` of an adapter as its processor. The model that generates is not steered: its distribution p, and q
    of a run without the image, give the sensitivity KL(p || q) and the entropy that the gate otherwise predicts from a hidden
    state. That takes three passes a token. Greedy decoding or sampling, no beams; use a new one for each batch.

    Args:
        adapter: the model.
        prompts: what is answered.
        artifact: vectors, and the gate's threshold.
        alpha: factor of all strengths.
        null_mode: how the image is left out.

    Attributes:
        strength_B1: g of the newest tokens; None before the first.
    """

    def __init__(
        self, adapter: VLMAdapter, prompts: Batch, artifact: SteeringArtifact, alpha: float = 1.0, null_mode: NullMode = "drop"
    ) -> None:
        self.adapter, self.artifact, self.alpha = adapter, artifact, alpha
        self._steered, self._blind = adapter.decode(prompts), adapter.decode(adapter.without_image(prompts, null_mode))
        self._response = FollowedResponse()
        self.strength_B1: Tensor | None = None

    def __call__(self, tokens_BT: Tensor, logits_BV: Tensor) -> Tensor:
        """Return the steered logits of the next token, ``[B, V]``.

        Raises:
            ValueError: if the tokens are not those of the last step and one more.
        """
        newest_B = self._response.newest(tokens_BT)
        log_s_B = log_sensitivity(visual_sensitivity(logits_BV, self._blind.next_logits(newest_B)))
        gate = self.artifact.gate.to(logits_BV.device)
        self.strength_B1 = gate.strength(log_s_B, entropy(logits_BV), self.artifact.gate_kind).unsqueeze(1)
        with steered(self.adapter, self.artifact, self.alpha, self.strength_B1):
            return self._steered.next_logits(newest_B)
