"""What a prototype actor reports: of a batch of states, of one decision, of a grounding (plain torch).

Shape suffixes: B batch, K prototypes, A action size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lightning_modules.protosac.policies import Policy, WeightedSamples


@dataclass(frozen=True)
class MixturePolicyOutput:
    """What the actor makes of a batch of states.

    Attributes:
        weights: weight w of every prototype, ``[B, K]``, sum 1, exactly 0 for those that ``top_m`` leaves out.
        mean, std: weighted sums of the prototypes' means and deviations before the squashing, ``[B, A]``.
        component_means, component_stds: the prototypes' own, ``[K, A]``.
        distribution: the policy.
    """

    weights: Tensor
    mean: Tensor
    std: Tensor
    component_means: Tensor
    component_stds: Tensor
    distribution: Policy

    def sample(self, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Draw actions ``[B, A]`` and return them with their log-densities ``[B]`` (a mixture: without gradient)."""
        return self.distribution.sample(generator)

    def weighted_samples(self, generator: torch.Generator | None = None) -> WeightedSamples:
        """Draw actions for a loss that is differentiable in everything, in either mixing."""
        return self.distribution.weighted_samples(generator)


@dataclass(frozen=True)
class Explanation:
    """The part of one prototype in one decision.

    Attributes:
        index: number of the prototype.
        weight: its weight w.
        prototype_state: the real state that it stands for, shape of an observation.
        mean_action: the action tanh(μ) that it stands for, ``[A]``.
        std: its deviation σ before the squashing, ``[A]``.
        contribution: w μ, ``[A]``; these sum over all prototypes to the policy's mean before the squashing.
    """

    index: int
    weight: float
    prototype_state: Tensor
    mean_action: Tensor
    std: Tensor
    contribution: Tensor


@dataclass(frozen=True)
class GroundingReport:
    """What one grounding did.

    Attributes:
        candidates: the state of each prototype, as an index into the states given, ``[K]``, all different.
        distances: distance from each prototype to the embedding of that state, before, ``[K]``.
        replaced: prototypes whose embedding changed, ``[K]`` bool.
        reset: prototypes whose rows in the optimiser are to be zero, ``[K]`` bool (all that a hard grounding replaced;
            of a soft one only the re-seeded).
        reseeded: dead prototypes that got another place and another Gaussian, ``[K]`` bool.
        drift: largest distance from a prototype to the embedding of its former state, before; NaN at the first grounding.
        kl: mean KL(policy before || policy after) on the first states.
    """

    candidates: Tensor
    distances: Tensor
    replaced: Tensor
    reset: Tensor
    reseeded: Tensor
    drift: float
    kl: float
