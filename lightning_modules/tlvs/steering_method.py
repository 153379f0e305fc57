"""One way of keeping a vision-language model from hallucinating, with all that it has learned of the model (plain torch)."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from lightning_modules.tlvs.adapter import Batch, LogitsProcessor, VLMAdapter
from lightning_modules.tlvs.artifact import SteeringArtifact
from lightning_modules.tlvs.calibration import StepSum, answer_loss, caption_losses
from lightning_modules.tlvs.contrastive import ContrastiveLogitsProcessor
from lightning_modules.tlvs.exact_steering import ExactSteering
from lightning_modules.tlvs.extraction import CalibrationSteps, TLVSExtractor
from lightning_modules.tlvs.gate import GateKind, StepGate
from lightning_modules.tlvs.mlp_steering import vista, vista_vectors, vti, vti_directions
from lightning_modules.tlvs.steering import steered

Method = Literal["none", "steering", "vista", "vti", "vcd"]
VISTA_SCALE = 0.1


class SteeringMethod(nn.Module):
    """What is done to a frozen model while it answers; the model itself is no part of the state.

    ======== ======================================================================================================
    name     what is done, with the strength ``alpha``
    ======== ======================================================================================================
    none     nothing
    steering turn the states of decoder layers, see :mod:`~lightning_modules.tlvs.steering`
    vista    turn what the feed-forward parts return towards what this image changes, by 0.1 times ``alpha`` or more
    vti      turn it towards one direction, from captions made without the image to right ones
    vcd      contrast the logits with those of a run without the image
    ======== ======================================================================================================

    Args:
        extractor: finds directions and gate; knows the model.
        name: see above.
        alpha: strength.
        exact: steer by the true sensitivity and entropy of each step, see
            :class:`~lightning_modules.tlvs.exact_steering.ExactSteering`.

    Raises:
        ValueError: if the name is unknown, or something else than steering is to be exact.
    """

    extracted: Tensor
    vti_Ld: Tensor

    def __init__(self, extractor: TLVSExtractor, name: Method = "steering", alpha: float = 1.0, exact: bool = False) -> None:
        super().__init__()
        if name not in get_args(Method):
            raise ValueError(f"method={name!r} is unknown: use one of {', '.join(get_args(Method))}")
        if exact and name != "steering":
            raise ValueError(f"exact=true belongs to method='steering', not to {name!r}: leave it out")
        self.extractor, self.name, self.alpha, self.exact = extractor, name, alpha, exact
        self._identity = self.adapter.identity()
        width = int(self._identity["width"])
        self.vectors_Ld = nn.Parameter(torch.zeros(len(extractor.layers), width))
        self.gate = StepGate(width)
        self.register_buffer("extracted", torch.tensor(False))
        self.register_buffer("vti_Ld", torch.zeros(len(self.adapter.decoder_layers()), width))

    @property
    def adapter(self) -> VLMAdapter:
        """The model."""
        return self.extractor.adapter

    @property
    def artifact(self) -> SteeringArtifact:
        """The present vectors and the gate; its report is empty."""
        found = self.extractor
        return SteeringArtifact(self.vectors_Ld, found.layers, found.gate_layer, self.gate, found.gate, self._identity, {})

    def extract(
        self,
        batches: Iterable[Batch],
        join: Callable[[CalibrationSteps], CalibrationSteps] = lambda steps: steps,
    ) -> dict[str, Any]:
        """Find directions and gate, and return the report.

        Args:
            batches: captions and questions with their responses.
            join: joins the steps of this process with those of others.
        """
        artifact = self.extractor.conclude(join(self.extractor.collect(batches)))
        with torch.no_grad():
            self.vectors_Ld.copy_(artifact.vectors_Ld)
            self.gate.load_state_dict(artifact.gate.state_dict())
            self.extracted.fill_(True)
        return artifact.report

    @torch.no_grad()
    def load(self, artifact: SteeringArtifact, gate: GateKind | None = None) -> None:
        """Take over what was learned before.

        Args:
            artifact: of the same model and layers.
            gate: factors of the gate; None takes those of the artifact.

        Raises:
            ValueError: if the artifact belongs to another model.
        """
        artifact.check(self._identity)
        self.vectors_Ld.copy_(artifact.vectors_Ld)
        self.gate = artifact.gate
        self.extractor.gate = gate or artifact.gate_kind
        self.extracted.fill_(True)

    @torch.no_grad()
    def learn_vti(self, captions: Sequence[Batch], prompts: Callable[[Batch], Batch], max_new_tokens: int) -> None:
        """Find VTI's directions from right captions to those that the model makes without the images.

        Args:
            captions: images with right captions.
            prompts: makes the prompts of a batch.
            max_new_tokens: longest caption.
        """
        imagined = []
        for batch in captions:
            blind = self.adapter.without_image(prompts(batch), self.extractor.null_mode)
            text_BT = torch.cat([blind["input_ids"], self.adapter.generate(blind, max_new_tokens)], dim=1)
            imagined.append(batch | {"input_ids": text_BT})
        self.vti_Ld.copy_(vti_directions(self.adapter, captions, imagined))

    def losses(self, captions: Batch, questions: Batch | None = None) -> dict[str, StepSum]:
        """Return the terms of the calibration's loss: ``sensitive``, ``other`` and, with questions, ``answer``."""
        artifact = self.artifact
        terms = caption_losses(self.adapter, captions, artifact, self.extractor.null_mode)
        if questions is not None:
            terms["answer"] = answer_loss(self.adapter, questions, artifact)
        return terms

    def calibrate(
        self, captions: Sequence[Batch], questions: Sequence[Batch] | None = None, steps: int = 40, lr: float = 6e-3
    ) -> list[float]:
        """Train the vectors by Adam and return the loss of each step.

        Args:
            captions: batches of images with captions, which are gone through again and again.
            questions: as many batches of questions with their answers, or None.
            steps: optimiser steps.
            lr: learning rate.
        """
        optimizer = torch.optim.Adam([self.vectors_Ld], lr=lr)
        history = []
        for step in range(steps):
            turn = step % len(captions)
            terms = self.losses(captions[turn], None if questions is None else questions[turn])
            loss = torch.stack([term.mean for term in terms.values()]).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            history.append(loss.detach())
        return torch.stack(history).tolist()

    def switched_on(self, prompts: Batch) -> AbstractContextManager[Any]:
        """Return a context in which hidden states are changed."""
        if self.name == "steering" and not self.exact:
            return steered(self.adapter, self._learned, self.alpha)
        if self.name == "vista":
            vectors_LBd = vista_vectors(self.adapter, prompts, self.extractor.null_mode)
            return vista(self.adapter, vectors_LBd, VISTA_SCALE * self.alpha)
        if self.name == "vti":
            return vti(self.adapter, self.vti_Ld, self.alpha)
        return nullcontext()

    def processor(self, prompts: Batch) -> LogitsProcessor | None:
        """Return what changes the logits of each step, if anything does."""
        null_mode = self.extractor.null_mode
        if self.name == "vcd":
            return ContrastiveLogitsProcessor(self.adapter, prompts, self.alpha, null_mode=null_mode)
        return ExactSteering(self.adapter, prompts, self._learned, self.alpha, null_mode) if self.exact else None

    @torch.no_grad()
    def generate(self, prompts: Batch, max_new_tokens: int) -> Tensor:
        """Return responses, ``[B, T]``."""
        with self.switched_on(prompts):
            return self.adapter.generate(prompts, max_new_tokens, self.processor(prompts))

    @torch.no_grad()
    def next_logits(self, prompts: Batch) -> Tensor:
        """Return the logits of the first word of each response, ``[B, V]``."""
        with self.switched_on(prompts):
            logits_BV = self.adapter.logits(prompts)[:, -1]
        processor = self.processor(prompts)
        return logits_BV if processor is None else processor(prompts["input_ids"], logits_BV)

    @property
    def _learned(self) -> SteeringArtifact:
        """What was learned, without gradients."""
        return replace(self.artifact, vectors_Ld=self.vectors_Ld.detach())
