"""Steering of a model while it decodes, by the hidden state of the same pass."""

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from lightning_modules.tlvs.adapter import VLMAdapter
from lightning_modules.tlvs.artifact import SteeringArtifact
from lightning_modules.tlvs.gate import GateKind
from lightning_modules.tlvs.operator import steer
from lightning_modules.tlvs.response_edits import ResponsePositions, response_edits


class ActiveSteering:
    """Steering that is switched on.

    Attributes:
        positions: which positions are steered.
        strength_Bn: g of the newest positions, ``[B, n]``; None before the first pass.
    """

    def __init__(self, positions: ResponsePositions) -> None:
        self.positions = positions
        self.strength_Bn: Tensor | None = None


@contextmanager
def steering(
    adapter: VLMAdapter, artifact: SteeringArtifact, alpha: float = 1.0, gate: GateKind | None = None
) -> Iterator[ActiveSteering]:
    """Within the context, turn the model's hidden states at each step of its responses.

    Works with a cache, batches that are padded at the left, and beams. With ``alpha=0`` or without layers the model is untouched.

    Args:
        adapter: the model.
        artifact: what was learned of it.
        alpha: factor of all strengths.
        gate: which factors of the gate are used; None: those that the artifact was calibrated with.

    Raises:
        ValueError: if the artifact belongs to another model, or alpha is not finite.
    """
    artifact.check(adapter.identity())
    with steered(adapter, artifact if gate is None else replace(artifact, gate_kind=gate), alpha) as active:
        yield active


@contextmanager
def steered(
    adapter: VLMAdapter, artifact: SteeringArtifact, alpha: float = 1.0, strength_Bn: Tensor | None = None
) -> Iterator[ActiveSteering]:
    r"""As :func:`steering`: :math:`h_{l,t} \mapsto \text{steer}(h_{l,t}; v_l/\|v_l\|, \alpha \|v_l\| g_t)`.

    The artifact is not compared with the model, and gradients reach its vectors. ``strength_Bn`` is g of the next pass, ``[B, n]``,
    where it is known without the gate.
    """
    if not math.isfinite(alpha):
        raise ValueError(f"alpha={alpha} must be a finite number")
    if alpha < 0:
        warnings.warn(f"alpha={alpha} is negative: it turns the model away from what it sees", stacklevel=3)
    active = ActiveSteering(ResponsePositions())
    layers, gate_layer = artifact.layers, artifact.gate_layer
    if alpha == 0 or not layers:
        yield active
        return
    decoder = adapter.decoder_layers()
    outside = [layer for layer in (*layers, gate_layer) if not 0 <= layer < len(decoder)]
    if outside:
        raise ValueError(f"the model has {len(decoder)} decoder layers, there is none with the number {outside[0]}")
    place = {layer: row for row, layer in enumerate(layers)}
    device = next(adapter.model.parameters()).device
    vectors_Ld, gate = artifact.vectors_Ld.to(device), artifact.gate.to(device)
    directions = torch.nn.functional.normalize(vectors_Ld, dim=-1).unbind()
    strengths = (alpha * vectors_Ld.norm(dim=-1)).unbind()

    def edit(layer: int, state_Bnd: Tensor) -> Tensor:
        if layer == gate_layer:
            active.strength_Bn = gate(state_Bnd, artifact.gate_kind) if strength_Bn is None else strength_Bn
        if layer not in place:
            return state_Bnd
        assert active.strength_Bn is not None
        row = place[layer]
        return steer(state_Bnd, directions[row], strengths[row] * active.strength_Bn)

    edited = {layer: decoder[layer] for layer in sorted({*layers, gate_layer})}
    with response_edits(adapter.model, edited, edit, active.positions):
        yield active
