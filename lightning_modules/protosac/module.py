"""ProtoSAC: soft actor-critic whose actor compares states with prototypes."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from lightning_modules.protosac.interpretability import Interpretability, interpretability
from lightning_modules.protosac.prototype_actor import PrototypeActor
from lightning_modules.protosac.records import GroundingReport
from lightning_modules.protosac.regularisers import effective_prototypes
from lightning_modules.protosac.similarity import Similarity
from lightning_modules.rl.sac_module import SACModule


class ProtoSACModule(SACModule):
    r"""Soft actor-critic with a prototype actor.

    The actor's loss is that of SAC, as an expectation over the acting prototypes, plus two regularisers,

    .. math::
        \mathbb{E}_s \sum_k w_k \bigl( \alpha \log \pi(a_k \mid s) - \min_j Q_j(s, a_k) \bigr)
            + g_\text{orth} L_\text{orth} + g_\text{ent} L_\text{ent}.

    :class:`callbacks.PrototypeGrounding` places the prototypes on real states and keeps them there.

    Args:
        num_prototypes: number K of prototypes.
        latent_dim: length of the embedding in which states are compared.
        similarity: ``log``, ``linear`` or ``cosine``.
        temperature: τ of the weights.
        mixing: ``blend`` or ``mixture``.
        top_m: let only the m most similar prototypes act; None: all.
        grounding: ``hard`` or ``ema``.
        reseed_dead: move prototypes that hardly act when the others are grounded.
        orthogonality: weight of the term that spreads the prototypes.
        negative_entropy: weight of the term that makes the actor lean on several prototypes.
        hidden: widths of the hidden layers of encoder and critics.
        max_actor_grad_norm: see :class:`SACModule`; near a prototype the similarity is steep.
        **options: those of :class:`SACModule`.

    Source: ProtoSAC (ICML 2026, OpenReview CgQvm7TDz5), abstract and reviews; the formulas are reconstructed.
    """

    smoke: ClassVar[dict[str, Any]] = {**SACModule.smoke, "num_prototypes": 4}

    actor: PrototypeActor

    def __init__(
        self,
        num_prototypes: int = 30,
        latent_dim: int = 32,
        similarity: Similarity = "log",
        temperature: float = 0.2,
        mixing: Literal["blend", "mixture"] = "blend",
        top_m: int | None = None,
        grounding: Literal["hard", "ema"] = "hard",
        reseed_dead: bool = False,
        orthogonality: float = 1e-3,
        negative_entropy: float = 1e-3,
        obs_dim: int | None = None,
        action_dim: int | None = None,
        hidden: Sequence[int] = (256, 256),
        max_actor_grad_norm: float | None = 10.0,
        **options: Any,
    ) -> None:
        super().__init__(obs_dim=obs_dim, action_dim=action_dim, hidden=hidden, max_actor_grad_norm=max_actor_grad_norm, **options)
        assert obs_dim is not None
        assert action_dim is not None
        self.actor = PrototypeActor(
            obs_dim,
            action_dim,
            num_prototypes=num_prototypes,
            latent_dim=latent_dim,
            hidden=hidden,
            similarity=similarity,
            temperature=temperature,
            mixing=mixing,
            top_m=top_m,
            grounding=grounding,
            reseed_dead=reseed_dead,
        )
        self.coefficients = {"orthogonality": orthogonality, "negative_entropy": negative_entropy}

    def explore(self, obs: Tensor) -> Tensor:
        output = self.actor(obs)
        self.actor.record_usage(output.weights)
        return output.sample()[0]

    def draw(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        return self.actor(obs).sample()  # the replay holds no values for the actor's own check to find, which waits for the device

    def policy_objective(self, obs: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        output = self.actor(obs)
        samples = output.weighted_samples()
        components = samples.weights.shape[1]
        value_JB = self.critics(obs.repeat_interleave(components, dim=0), samples.actions.flatten(0, 1))
        value_BM = value_JB.amin(dim=0).view(-1, components)
        loss = samples.expectation(alpha * samples.log_prob - value_BM).mean()
        regularizers = self.actor.regularizers(output.weights)
        for name, coefficient in self.coefficients.items():
            loss = loss + coefficient * regularizers[name]
        logs = {"effective_prototypes": effective_prototypes(output.weights.detach()), **regularizers}
        return loss, samples.expectation(samples.log_prob).detach(), logs

    def interpretability(self, states: Tensor, noise: float, nearest: int, generator: torch.Generator) -> Interpretability:
        """Measure how the actor can be read on states ``[N, obs]``, see :func:`interpretability`."""
        return interpretability(self.actor, states, noise, nearest, generator)

    def ground(self, states: Tensor) -> GroundingReport | None:
        """Place the prototypes on real states, the first time by k-means++ with new Gaussians; then None is returned.

        Args:
            states: candidates from the replay, ``[N, obs]``.
        """
        if not self.actor.grounded:
            self.actor.initialize(states, torch.Generator(states.device).manual_seed(0))  # alike on all ranks
            return None
        for usage in (self.actor.usage_sum, self.actor.usage_steps):
            usage.copy_(self.trainer.strategy.broadcast(usage))  # each rank acts by itself, but all must find the same ones dead
        _, policy_optimizer = self.trainer.optimizers
        return self.actor.ground(states, policy_optimizer)
