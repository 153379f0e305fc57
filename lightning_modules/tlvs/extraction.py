"""Extraction of steering directions and the gate from a calibration set.

Legend: L steered layers, S steps that predict a token of a response, d width, V vocabulary.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lightning_modules.tlvs.adapter import Batch, NullMode, VLMAdapter, response_steps
from lightning_modules.tlvs.artifact import SteeringArtifact
from lightning_modules.tlvs.directions import Refinement, refine_directions, signal_to_noise
from lightning_modules.tlvs.gate import GateKind, StepGate, log_sensitivity
from lightning_modules.tlvs.sensitivity import Divergence, entropy, gini, lorenz_curve, select_tokens, top_share, visual_sensitivity

LEAST_SENSITIVE = 16
SMALLEST = 1e-6


@dataclass
class CalibrationSteps:
    """What the model did at each step of the calibration set.

    Attributes:
        difference_LSd: states with the image minus states without, of the steered layers.
        gate_Sd: states of the gate layer, with the image.
        sensitivity_S: visual sensitivity.
        entropy_S: entropy of the next token, nats.
    """

    difference_LSd: Tensor
    gate_Sd: Tensor
    sensitivity_S: Tensor
    entropy_S: Tensor

    @classmethod
    def joined(cls, parts: Sequence["CalibrationSteps"]) -> "CalibrationSteps":
        """Return the steps of all parts."""
        return cls(
            torch.cat([part.difference_LSd for part in parts], dim=1),
            torch.cat([part.gate_Sd for part in parts]),
            torch.cat([part.sensitivity_S for part in parts]),
            torch.cat([part.entropy_S for part in parts]),
        )


class TLVSExtractor:
    """Find where a model looks, and along which direction the image moves it there.

    The layers are steered with a strength of 0.1; a calibration (see ``calibration.py``) learns better ones. The artifact's
    report holds, by name, how unevenly the sensitivity is spread (``top_share``, ``gini`` and ``lorenz``, the share that the most
    sensitive 0, 5, ..., 100 % of the steps hold), the signal-to-noise ratio of the
    differences in all steps and in the sensitive ones, a number a layer, and how well the probes predict (correlations).

    Args:
        adapter: the model, whose responses are given in the batches.
        layers: decoder layers to steer; None takes the middle half, and all of a model with fewer than four.
        rho: share of the steps that count as sensitive.
        refinement: see :func:`~lightning_modules.tlvs.directions.refine_directions`.
        divergence: see :func:`~lightning_modules.tlvs.sensitivity.visual_sensitivity`.
        null_mode: how the image is left out.
        gate: factors of the gate that are used.
        gate_layer: layer that the gate reads; None takes the first steered one.
        nuisance_rank: see ``refine_directions``.

    Raises:
        ValueError: if a layer does not exist.

    Source: a reading of TLVS's abstract (arXiv 2606.07647).
    """

    def __init__(
        self,
        adapter: VLMAdapter,
        layers: Sequence[int] | None = None,
        rho: float = 0.25,
        refinement: Refinement = "pc1",
        divergence: Divergence = "kl",
        null_mode: NullMode = "drop",
        gate: GateKind = "both",
        gate_layer: int | None = None,
        nuisance_rank: int = 0,
    ) -> None:
        depth = len(adapter.decoder_layers())
        self.layers = tuple(sorted(layers)) if layers is not None else _middle(depth)
        self.gate_layer = min(self.layers, default=0) if gate_layer is None else gate_layer
        outside = [layer for layer in (*self.layers, self.gate_layer) if not 0 <= layer < depth]
        if outside:
            raise ValueError(f"the model has {depth} decoder layers, there is none with the number {outside[0]}")
        self.adapter, self.rho, self.refinement, self.divergence = adapter, rho, refinement, divergence
        self.null_mode, self.gate, self.nuisance_rank = null_mode, gate, nuisance_rank

    def fit(self, batches: Iterable[Batch]) -> SteeringArtifact:
        """Return directions, gate and report.

        Args:
            batches: captions and questions with their responses, and with images.

        Raises:
            ValueError: if there are too few sensitive steps, or the image changes nothing.
        """
        return self.conclude(self.collect(batches))

    def conclude(self, steps: CalibrationSteps) -> SteeringArtifact:
        """As :meth:`fit`, from what was collected."""
        if steps.sensitivity_S.max() < SMALLEST:
            raise ValueError("no step depends on the image: it does not reach the decoder (is its placeholder missing?)")
        selected_S = select_tokens(steps.sensitivity_S, self.rho)
        if selected_S.sum() < LEAST_SENSITIVE:
            raise ValueError(
                f"the calibration set has {int(selected_S.sum())} sensitive steps, {LEAST_SENSITIVE} are needed: "
                "use more text or a larger rho"
            )
        directions_Ld = refine_directions(
            steps.difference_LSd, selected_S, steps.sensitivity_S, self.refinement, self.nuisance_rank
        )
        gate = StepGate(steps.gate_Sd.shape[1])
        gate.fit(steps.gate_Sd, steps.sensitivity_S, steps.entropy_S)
        report = {
            "steps": len(selected_S),
            "top_share": top_share(steps.sensitivity_S),
            "gini": gini(steps.sensitivity_S),
            "lorenz": _thinned(lorenz_curve(steps.sensitivity_S)[1]),
            "snr_all": signal_to_noise(steps.difference_LSd).tolist(),
            "snr_sensitive": signal_to_noise(steps.difference_LSd[:, selected_S]).tolist(),
            "sensitivity_correlation": _correlation(
                gate.predicted_log_sensitivity(steps.gate_Sd), log_sensitivity(steps.sensitivity_S)
            ),
            "entropy_correlation": _correlation(gate.predicted_entropy(steps.gate_Sd), steps.entropy_S),
        }
        return SteeringArtifact(0.1 * directions_Ld, self.layers, self.gate_layer, gate, self.gate, self.adapter.identity(), report)

    @torch.no_grad()
    def collect(self, batches: Iterable[Batch]) -> CalibrationSteps:
        """Run the model with and without the images and compare each step.

        Raises:
            ValueError: if there is no batch, or both runs do not have the same steps.
        """
        decoder = self.adapter.decoder_layers()
        watched = [decoder[layer] for layer in (*self.layers, self.gate_layer)]
        found: list[CalibrationSteps] = []
        for batch in batches:
            logits_SV, states_LSd = response_steps(self.adapter, batch, watched)
            blind = self.adapter.without_image(batch, self.null_mode)
            blind_logits_SV, blind_LSd = response_steps(self.adapter, blind, watched)
            targets_S = self.adapter.targets(batch)[self.adapter.response_mask(batch)]
            sensitivity_S = visual_sensitivity(logits_SV, blind_logits_SV, self.divergence, targets_S)
            difference_LSd = (states_LSd[:-1].float() - blind_LSd[:-1].float()).cpu()
            found.append(
                CalibrationSteps(difference_LSd, states_LSd[-1].float().cpu(), sensitivity_S.cpu(), entropy(logits_SV).cpu())
            )
        if not found:
            raise ValueError("the calibration set is empty: give batches of images with captions and questions")
        return CalibrationSteps.joined(found)


def _middle(depth: int) -> tuple[int, ...]:
    """Return the layers between a quarter and three quarters of the depth."""
    return tuple(range(depth)) if depth < 4 else tuple(range(depth // 4, 3 * depth // 4))


def _correlation(predicted_S: Tensor, true_S: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([predicted_S.double(), true_S.double()]))[0, 1])


def _thinned(held_S: Tensor) -> list[float]:
    """Return a curve at 21 equal distances."""
    places = torch.linspace(0, len(held_S) - 1, 21).round().long()
    return held_S[places].tolist()
