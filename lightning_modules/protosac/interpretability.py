"""How far a prototype actor can be read: on how many prototypes it leans, which it uses, whether explanations hold (plain torch).

Shape suffixes: N states, K prototypes, J nearest states, T members of a top set.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lightning_modules.protosac.grounding import distances_to
from lightning_modules.protosac.prototype_actor import PrototypeActor
from lightning_modules.protosac.regularisers import effective_prototypes

USED = 0.01
TOP = 3


@dataclass(frozen=True)
class Interpretability:
    r"""Measures of an actor on some states.

    Attributes:
        effective_prototypes: mean of :math:`\exp H(w)`, a scalar in [1, K].
        prototypes_used: share of the prototypes with a mean weight above 1 %, a scalar.
        explanation_stability: mean Jaccard index of the three heaviest prototypes with and without noise on the state, a scalar.
        usage: mean weight of each prototype, ``[K]``, sum 1.
        nearest: the states whose embeddings are nearest to each prototype, nearest first, as indices, ``[K, J]``.
        distances: how far those embeddings are from it, ``[K, J]``.
    """

    effective_prototypes: Tensor
    prototypes_used: Tensor
    explanation_stability: Tensor
    usage: Tensor
    nearest: Tensor
    distances: Tensor


@torch.no_grad()
def interpretability(
    actor: PrototypeActor, states: Tensor, noise: float = 0.01, nearest: int = 3, generator: torch.Generator | None = None
) -> Interpretability:
    """Measure an actor, in the mode that it is in, on states that it visits.

    Args:
        actor: the actor.
        states: ``[N, obs]``.
        noise: deviation of the noise that explanations should bear, as a share of the states' own in each dimension.
        nearest: number J of real states to find for each prototype; all N if there are fewer.
        generator: source of the noise, on the device of the states.
    """
    weights_NK = actor(states).weights
    usage_K = weights_NK.mean(dim=0)
    noisy_NK = actor(perturbed(states, noise, generator)).weights
    acting = actor.num_prototypes if actor.top_m is None else actor.top_m
    places_KJ, distances_KJ = nearest_states(actor.embeddings, actor.encoder(states), nearest)
    return Interpretability(
        effective_prototypes=effective_prototypes(weights_NK),
        prototypes_used=(usage_K > USED).float().mean(),
        explanation_stability=top_set_overlap(weights_NK, noisy_NK, min(TOP, acting)).mean(),
        usage=usage_K,
        nearest=places_KJ,
        distances=distances_KJ,
    )


def perturbed(states: Tensor, noise: float, generator: torch.Generator | None = None) -> Tensor:
    """Add Gaussian noise, in each dimension ``noise`` times the deviation that the states, ``[N, obs]``, have there."""
    drawn = torch.randn(states.shape, generator=generator, device=states.device, dtype=states.dtype)
    return states + noise * states.std(dim=0, correction=0) * drawn


def top_set_overlap(first_NK: Tensor, second_NK: Tensor, top: int) -> Tensor:
    r"""Return the Jaccard index of the sets of the ``top`` largest weights, ``[N]``.

    .. math::
        J = \frac{\lvert A \cap B \rvert}{\lvert A \cup B \rvert} = \frac{c}{2t - c}, \qquad c = \lvert A \cap B \rvert

    Args:
        first_NK: weights.
        second_NK: weights of the same states under another condition.
        top: size t of the sets, at most K.
    """
    first_NT, second_NT = (weights.topk(top, dim=1).indices for weights in (first_NK, second_NK))
    common_N = (first_NT.unsqueeze(2) == second_NT.unsqueeze(1)).sum(dim=(1, 2))
    return common_N / (2 * top - common_N)


def nearest_states(P_Kd: Tensor, Z_Nd: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the ``count`` embeddings nearest to each prototype as indices, nearest first, and their distances, both ``[K, J]``.

    Args:
        P_Kd: prototypes.
        Z_Nd: embedded states; all of them are returned if there are no more than ``count``.
        count: number wanted.
    """
    distances_KJ, places_KJ = distances_to(P_Kd, Z_Nd).topk(min(count, len(Z_Nd)), dim=1, largest=False)
    return places_KJ, distances_KJ.sqrt()
