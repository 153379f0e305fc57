"""An actor that compares a state with K prototypes and acts by the weighted mixture of their Gaussians (plain torch).

Shape suffixes: B batch, K prototypes, M prototypes that act, d latent size, A action size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from lightning_modules.protosac.grounded_prototypes import GroundedPrototypes
from lightning_modules.protosac.policies import Policy, TanhGaussian, TanhMixture
from lightning_modules.protosac.records import Explanation, MixturePolicyOutput
from lightning_modules.protosac.regularisers import negative_entropy, orthogonality
from lightning_modules.protosac.similarity import SIMILARITIES, Similarity, similarity_logits, top_weights
from lightning_modules.rl.networks import mlp


class PrototypeActor(GroundedPrototypes):
    r"""Act as the prototypes that the state looks like would act.

    .. math::
        z = f(s), \qquad w = \mathrm{softmax}_k\,\mathrm{logit}(z, p_k), \qquad
        \text{blend: } u \sim \mathcal N \Bigl( \sum_k w_k \mu_k,\ \mathrm{diag} \Bigl( \sum_k w_k \sigma_k \Bigr)^2 \Bigr), \qquad
        \text{mixture: } u \sim \sum_k w_k\, \mathcal N(\mu_k, \mathrm{diag}\,\sigma_k^2), \qquad a = \tanh(u)

    What a prototype is, and how it is tied to a real state, says :class:`GroundedPrototypes`.

    Args:
        obs_dim: size of an observation; its shape if ``encoder`` is given.
        action_dim: size A of an action, each entry in (-1, 1).
        num_prototypes: K.
        latent_dim: d; K/2 or more lets the prototypes become nearly orthogonal.
        hidden: hidden sizes of the encoder, ReLU between, linear output.
        similarity: ``"log"``, ``"linear"`` or ``"cosine"``, see :func:`similarity_logits`.
        temperature: τ; ``"linear"`` has none.
        mixing: ``"blend"`` or ``"mixture"``.
        top_m: let only the m largest weights of each state act, renormalised (None: all).
        eps: ε of the similarity, its value at distance 0 is log(1/ε).
        deterministic: action of a mixture in evaluation: ``"argmax"``, the heaviest component's, or ``"mean"``,
            tanh(Σ w μ); for a blend both are tanh(Σ w μ).
        grounding: ``"hard"``, p ← f(x), or ``"ema"``, p ← (1-ρ) p + ρ f(x).
        ema_rate: ρ.
        reseed_dead: at a grounding, re-seed prototypes whose mean weight since the last one is below 0.1/K.
        encoder: module from observations ``[B, *obs_dim]`` to ``[B, d]`` instead of the perceptron.

    Raises:
        ValueError: on a value outside these ranges.

    Source: ProtoSAC (ICML 2026, OpenReview CgQvm7TDz5), abstract and reviews; formulas reconstructed, see the method card.
    """

    def __init__(
        self,
        obs_dim: int | Sequence[int],
        action_dim: int,
        num_prototypes: int = 30,
        latent_dim: int = 32,
        hidden: Sequence[int] = (256, 256),
        similarity: Similarity = "log",
        temperature: float = 0.2,
        mixing: Literal["blend", "mixture"] = "blend",
        top_m: int | None = None,
        eps: float = 1e-4,
        deterministic: Literal["argmax", "mean"] = "argmax",
        grounding: Literal["hard", "ema"] = "hard",
        ema_rate: float = 0.1,
        reseed_dead: bool = False,
        encoder: nn.Module | None = None,
    ) -> None:
        obs_shape = (obs_dim,) if isinstance(obs_dim, int) else tuple(obs_dim)
        if len(obs_shape) != 1 and encoder is None:
            raise ValueError(f"observations of shape {obs_shape} are no vectors: pass an encoder that maps them to latent_dim")
        sizes = {"obs_dim": min(obs_shape, default=0), "action_dim": action_dim, "num_prototypes": num_prototypes}
        for name, size in (*sizes.items(), *(("hidden", size) for size in hidden)):
            if size < 1:
                raise ValueError(f"{name} must be at least 1, got {size}")
        if latent_dim < 2:
            raise ValueError(f"latent_dim must be at least 2, got {latent_dim}")
        if similarity not in SIMILARITIES:
            raise ValueError(f"similarity must be 'log', 'linear' or 'cosine', got {similarity!r}")
        if not temperature > 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        if mixing not in ("blend", "mixture"):
            raise ValueError(f"mixing must be 'blend' or 'mixture', got {mixing!r}")
        if not 0 < eps < 1:
            raise ValueError(f"eps must lie between 0 and 1, got {eps}")
        if deterministic not in ("argmax", "mean"):
            raise ValueError(f"deterministic must be 'argmax' or 'mean', got {deterministic!r}")
        if encoder is None:
            encoder = mlp([obs_shape[0], *hidden, latent_dim])
        super().__init__(encoder, obs_shape, num_prototypes, latent_dim, action_dim, grounding, ema_rate, reseed_dead)
        self.similarity: Similarity = similarity
        self.temperature = temperature
        self.mixing = mixing
        self.eps = eps
        self.deterministic = deterministic
        self.top_m = self._checked_top(top_m)

    def forward(self, obs: Tensor, top_m: int | None = None) -> MixturePolicyOutput:
        """Compare and mix.

        Args:
            obs: states, ``[B, obs_dim]``.
            top_m: let only so many prototypes act, instead of the actor's own number.

        Raises:
            ValueError: if a shape does not fit.
        """
        z_Bd = self._encode(obs)
        top_m = self.top_m if top_m is None else self._checked_top(top_m)
        with torch.autocast(z_Bd.device.type, enabled=False):
            z_Bd = z_Bd.to(self.embeddings.dtype)
            logits_BK = similarity_logits(z_Bd, self.embeddings, self.similarity, self.temperature, self.eps)
            means_KA, stds_KA = self.means, self.stds
            if top_m is None:
                log_weights_BM = logits_BK.log_softmax(dim=-1)
                weights_BK = log_weights_BM.exp()
                acting_means, acting_stds = means_KA.unsqueeze(0), stds_KA.unsqueeze(0)
            else:
                log_weights_BM, index_BM = top_weights(logits_BK, top_m)
                weights_BK = torch.zeros_like(logits_BK).scatter(1, index_BM, log_weights_BM.exp())
                acting_means, acting_stds = means_KA[index_BM], stds_KA[index_BM]
            mean_BA, std_BA = weights_BK @ means_KA, weights_BK @ stds_KA
            distribution: Policy
            if self.mixing == "blend":
                distribution = TanhGaussian(mean_BA, std_BA)
            else:
                distribution = TanhMixture(log_weights_BM, acting_means, acting_stds)
            return MixturePolicyOutput(weights_BK, mean_BA, std_BA, means_KA, stds_KA, distribution)

    def sample(self, obs: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Draw an action for each environment's observation.

        A blend is reparameterised; a mixture has no gradient here, train it through ``actor(obs).weighted_samples()``.

        Returns:
            Actions ``[B, A]`` and their log-densities ``[B]``.

        Raises:
            ValueError: if an observation is not finite (names the environment), or a shape does not fit.
        """
        self._check(obs, "observation of environment")
        return self(obs).sample(generator)

    def mode(self, obs: Tensor, top_m: int | None = None) -> Tensor:
        """The deterministic action for each environment's observation, ``[B, A]``; errors as in :meth:`sample`."""
        self._check(obs, "observation of environment")
        output = self(obs, top_m)
        return output.mean.tanh() if self.deterministic == "mean" else output.distribution.mode()

    @torch.no_grad()
    def explain(self, obs: Tensor, top: int | None = 3) -> list[Explanation]:
        """Say which prototypes make a decision, heaviest first.

        Args:
            obs: one state, ``[obs_dim]`` or ``[1, obs_dim]``.
            top: number of prototypes (None: all).

        Raises:
            RuntimeError: if the actor is not grounded.
            ValueError: if there is not exactly one finite state, or ``top < 1``.
        """
        self._need_grounding("explain")
        if top is not None and top < 1:
            raise ValueError(f"top must be at least 1 or None, got {top}")
        if obs.shape == self.obs_shape:
            obs = obs.unsqueeze(0)
        self._check(obs, "observation")
        if len(obs) != 1:
            raise ValueError(f"explain takes one observation, got {len(obs)}: call it for each")
        with self._evaluating():
            output = self(obs)
        weights_K, order_K = output.weights[0].sort(descending=True, stable=True)
        return [
            Explanation(
                index=k,
                weight=weight,
                prototype_state=self.prototype_states[k].clone(),
                mean_action=output.component_means[k].tanh(),
                std=output.component_stds[k],
                contribution=output.weights[0, k] * output.component_means[k],
            )
            for k, weight in list(zip(order_K.tolist(), weights_K.tolist(), strict=True))[:top]
        ]

    def regularizers(self, weights_BK: Tensor) -> dict[str, Tensor]:
        """Return ``orthogonality`` of the prototypes and ``negative_entropy`` of the weights, without their coefficients."""
        return {"orthogonality": orthogonality(self.embeddings), "negative_entropy": negative_entropy(weights_BK)}

    def _checked_top(self, top_m: int | None) -> int | None:
        if top_m is not None and not 1 <= top_m <= self.num_prototypes:
            raise ValueError(f"top_m must lie between 1 and num_prototypes={self.num_prototypes} or be None, got {top_m}")
        return top_m
