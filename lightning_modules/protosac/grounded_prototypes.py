"""K prototypes, each a Gaussian over actions and the real state that it stands for (plain torch).

Shape suffixes: B batch, K prototypes, N candidates, d latent size, A action size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lightning_modules.protosac.grounding import (
    assign,
    distances_to,
    distinct_rows,
    farthest_candidates,
    kmeans_plus_plus,
    reset_adam_rows,
    spread_actions,
)
from lightning_modules.protosac.policies import Policy
from lightning_modules.protosac.records import GroundingReport

LOG_STD_RANGE = (-5.0, 2.0)
LOG_STD_START = -0.5
DEAD_SHARE = 0.1
KL_STATES = 256


class GroundedPrototypes(nn.Module):
    r"""Prototypes of an actor; a subclass says in ``forward`` how they act together.

    Each prototype owns an embedding :math:`p_k`, a Gaussian (:math:`\mu_k, \log \sigma_k` clamped to [-5, 2]) and, in a buffer,
    the real state :math:`x_k` that it stands for. :meth:`initialize` places them once, :meth:`ground` moves them back onto real
    states during training, :meth:`sync` makes :math:`p_k = f(x_k)` hold again.

    Args:
        encoder: f, from observations ``[B, *obs_shape]`` to ``[B, d]``.
        obs_shape: shape of an observation.
        num_prototypes: K.
        latent_dim: d.
        action_dim: size A of an action.
        grounding: ``"hard"``, p ← f(x), or ``"ema"``, p ← (1-ρ) p + ρ f(x).
        ema_rate: ρ.
        reseed_dead: at a grounding, re-seed prototypes whose mean weight since the last one is below 0.1/K.

    Raises:
        ValueError: on an unknown grounding or a rate outside (0, 1].
    """

    prototype_states: Tensor
    grounding_count: Tensor
    usage_sum: Tensor
    usage_steps: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        obs_shape: tuple[int, ...],
        num_prototypes: int,
        latent_dim: int,
        action_dim: int,
        grounding: Literal["hard", "ema"],
        ema_rate: float,
        reseed_dead: bool,
    ) -> None:
        super().__init__()
        if grounding not in ("hard", "ema"):
            raise ValueError(f"grounding must be 'hard' or 'ema', got {grounding!r}")
        if not 0 < ema_rate <= 1:
            raise ValueError(f"ema_rate must lie in (0, 1], got {ema_rate}")
        self.obs_shape, self.grounding, self.ema_rate, self.reseed_dead = obs_shape, grounding, ema_rate, reseed_dead
        self.encoder = encoder
        self.embeddings = nn.Parameter(torch.randn(num_prototypes, latent_dim))
        self.means = nn.Parameter(spread_actions(num_prototypes, action_dim))
        self.log_stds = nn.Parameter(torch.full((num_prototypes, action_dim), LOG_STD_START))
        self.register_buffer("prototype_states", torch.zeros(num_prototypes, *obs_shape))
        self.register_buffer("grounding_count", torch.zeros((), dtype=torch.long))
        self.register_buffer("usage_sum", torch.zeros(num_prototypes))
        self.register_buffer("usage_steps", torch.zeros((), dtype=torch.long))

    @property
    def num_prototypes(self) -> int:
        """K."""
        return len(self.embeddings)

    @property
    def grounded(self) -> bool:
        """Whether every prototype stands for a real state."""
        return bool(self.grounding_count > 0)

    @property
    def stds(self) -> Tensor:
        """The prototypes' deviations σ, ``[K, A]``."""
        return self.log_stds.clamp(*LOG_STD_RANGE).exp()

    @property
    def mean_weights(self) -> Tensor:
        """Mean weight of each prototype over the recorded steps since the last grounding, ``[K]``; NaN before any."""
        return self.usage_sum / self.usage_steps

    @torch.no_grad()
    def record_usage(self, weights_BK: Tensor) -> None:
        """Count the weights of B environment steps towards :attr:`mean_weights`."""
        self.usage_sum += weights_BK.sum(dim=0)
        self.usage_steps += len(weights_BK)

    @torch.no_grad()
    def initialize(self, states: Tensor, generator: torch.Generator | None = None) -> None:
        """Place the prototypes on real states by k-means++ on their embeddings, and spread their Gaussians over the actions.

        Args:
            states: states of the random warm-up, ``[N, obs_dim]``.
            generator: source of randomness, on the device of the actor.

        Raises:
            ValueError: if fewer than K of the states are distinct, or one is not finite.
        """
        states, _, Z_Nd = self._candidates(states)
        chosen_K = kmeans_plus_plus(Z_Nd, self.num_prototypes, generator)
        self.embeddings.copy_(Z_Nd[chosen_K])
        self.prototype_states.copy_(states[chosen_K])
        self.means.copy_(spread_actions(self.num_prototypes, self.means.shape[1], generator))
        self.log_stds.fill_(LOG_STD_START)
        self._count_grounding()

    @torch.no_grad()
    def ground(self, states: Tensor, optimizer: torch.optim.Optimizer | None = None) -> GroundingReport:
        r"""Tie each prototype to a real state of its own, the nearest overall.

        .. math::
            \min_{\text{one-to-one } s^*} \sum_k \lVert p_k - f(s_k^*) \rVert^2, \qquad
            x_k \leftarrow s_k^*, \qquad p_k \leftarrow f(s_k^*) \ \text{ or, soft, }\ (1 - \rho)\, p_k + \rho f(s_k^*)

        Equal states count once. Dead prototypes, if they are re-seeded, first move to the candidates farthest from the living and
        take over the Gaussian of the living prototype nearest there.

        Args:
            states: candidates from the replay buffer, ``[N, obs_dim]``.
            optimizer: the actor's; its memory of the prototypes in ``report.reset`` is zeroed.

        Raises:
            ValueError: if fewer than K of the states are distinct, or one is not finite.
        """
        candidates, index_N, Z_Nd = self._candidates(states)
        first_states = states[:KL_STATES].to(self.embeddings)
        drift = self.drift().item() if self.grounded else math.nan
        with self._evaluating():
            before = self(first_states)
        policy_before = _copied(before.distribution)
        P_old_Kd = self.embeddings.clone()
        reseeded_K = self._reseed(Z_Nd)
        cost_KN = distances_to(self.embeddings, Z_Nd)
        chosen_K = assign(cost_KN)
        target_Kd = Z_Nd[chosen_K]
        self.embeddings.copy_(target_Kd if self.grounding == "hard" else self.embeddings.lerp(target_Kd, self.ema_rate))
        self.prototype_states.copy_(candidates[chosen_K])
        replaced_K = (self.embeddings != P_old_Kd).any(dim=1)
        reset_K = replaced_K if self.grounding == "hard" else reseeded_K
        if optimizer is not None:
            reset_adam_rows(optimizer, self.embeddings, reset_K)
            reset_adam_rows(optimizer, self.means, reseeded_K)
            reset_adam_rows(optimizer, self.log_stds, reseeded_K)
        self._count_grounding()
        with self._evaluating():
            after = self(first_states).distribution
        fixed = torch.Generator(Z_Nd.device).manual_seed(0)
        return GroundingReport(
            candidates=index_N[chosen_K],
            distances=torch.linalg.vector_norm(P_old_Kd - target_Kd, dim=1),
            replaced=replaced_K,
            reset=reset_K,
            reseeded=reseeded_K,
            drift=drift,
            kl=policy_before.kl(after, fixed).mean().item(),
        )

    @torch.no_grad()
    def sync(self) -> Tensor:
        """Set every prototype to the embedding of its state, and return what they were, ``[K, d]``.

        Raises:
            RuntimeError: if the actor is not grounded.
        """
        self._need_grounding("sync")
        before_Kd = self.embeddings.clone()
        self.embeddings.copy_(self._embed(self.prototype_states))
        return before_Kd

    @torch.no_grad()
    def drift(self) -> Tensor:
        """Largest distance from a prototype to the embedding of its state, a scalar; errors as in :meth:`sync`."""
        self._need_grounding("drift")
        return torch.linalg.vector_norm(self._embed(self.prototype_states) - self.embeddings, dim=1).max()

    def _check_shape(self, obs: Tensor) -> None:
        if obs.ndim != len(self.obs_shape) + 1 or obs.shape[1:] != self.obs_shape:
            hint = "; images need an encoder: pass one" if obs.ndim > 2 and len(self.obs_shape) == 1 else ""
            raise ValueError(f"observations must have shape [B, {_text(self.obs_shape)}], got {list(obs.shape)}{hint}")

    def _check(self, obs: Tensor, name: str) -> None:
        """Refuse a wrong shape, and a row that is not finite by its number (this waits for the device)."""
        self._check_shape(obs)
        finite_B = obs.isfinite().flatten(1).all(dim=1)
        if not torch.compiler.is_compiling() and not finite_B.all():
            raise ValueError(f"{name} {int(finite_B.int().argmin())} is not finite")

    def _encode(self, obs: Tensor) -> Tensor:
        self._check_shape(obs)
        z_Bd = self.encoder(obs)
        if z_Bd.shape != (len(obs), self.embeddings.shape[1]):
            raise ValueError(f"the encoder must return [B, latent_dim={self.embeddings.shape[1]}], got {list(z_Bd.shape)}")
        return z_Bd

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Put the encoder in evaluation mode, and every part of it back into its own afterwards."""
        modes = [(part, part.training) for part in self.encoder.modules()]
        self.encoder.eval()
        try:
            yield
        finally:
            for part, training in modes:
                part.training = training

    def _embed(self, states: Tensor) -> Tensor:
        with self._evaluating():
            Z_Nd = self._encode(states).to(self.embeddings.dtype)
        if not Z_Nd.isfinite().all():
            raise ValueError("the encoder's embeddings are not finite: the actor has diverged, lower its learning rate")
        return Z_Nd

    def _candidates(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the distinct states, their places among the given, and their embeddings."""
        K = self.num_prototypes
        if len(states) == 0:
            raise ValueError("grounding needs data and there is none: collect environment steps first")
        self._check(states, "state")
        states = states.to(self.embeddings)
        index_N = distinct_rows(states)
        if len(index_N) < K:
            raise ValueError(
                f"need at least {K} distinct states, got {len(index_N)} among {len(states)}; collect more or lower num_prototypes"
            )
        states = states[index_N]
        return states, index_N, self._embed(states)

    def _reseed(self, Z_Nd: Tensor) -> Tensor:
        """Move dead prototypes, if they are to be moved, and return their mask."""
        dead_K = self.mean_weights < DEAD_SHARE / self.num_prototypes
        if not self.reseed_dead or not dead_K.any():
            return torch.zeros_like(dead_K)
        living = (~dead_K).nonzero().squeeze(1)
        chosen, nearest = farthest_candidates(self.embeddings[living], Z_Nd, int(dead_K.sum()))
        self.embeddings[dead_K] = Z_Nd[chosen]
        self.means[dead_K] = self.means[living[nearest]]
        self.log_stds[dead_K] = self.log_stds[living[nearest]]
        return dead_K

    def _count_grounding(self) -> None:
        self.grounding_count += 1
        self.usage_sum.zero_()
        self.usage_steps.zero_()

    def _need_grounding(self, name: str) -> None:
        if not self.grounded:
            raise RuntimeError(
                f"{name}: the prototypes stand for no real states yet, call initialize(states) or ground(states) first"
            )

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        """Refuse another actor's sizes in one sentence instead of one a tensor."""
        names = ("embeddings", "prototype_states", "means")
        if all(prefix + name in state_dict for name in names):
            theirs = _sizes(*(state_dict[prefix + name] for name in names))
            ours = _sizes(*(getattr(self, name) for name in names))
            if theirs != ours:
                raise ValueError(f"the checkpoint's actor has {theirs}, this one has {ours}: build it with the checkpoint's sizes")
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def _copied(policy: Policy) -> Policy:
    """Return the policy with tensors of its own, so that later changes of the actor do not reach it."""
    return type(policy)(**{name: value.clone() for name, value in vars(policy).items()})


def _text(shape: Sequence[int]) -> str:
    return ", ".join(map(str, shape))


def _sizes(P_Kd: Tensor, states: Tensor, means_KA: Tensor) -> str:
    return (
        f"num_prototypes={len(P_Kd)}, obs_dim={_text(states.shape[1:])}, latent_dim={P_Kd.shape[1]}, action_dim={means_KA.shape[1]}"
    )
