"""Distributions over actions in (-1, 1): a squashed Gaussian and a squashed mixture of Gaussians (plain torch).

Both draw u before the squashing a = tanh(u), and report log-densities of a as functions of u: near the bounds a has no digits left.

Shape suffixes: B batch, M components, S samples a state, A action size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lightning_modules.rl.squashed_gaussian import normal_log_prob, squashed_log_prob, squashed_sample, tanh_log_jacobian


@dataclass(frozen=True)
class WeightedSamples:
    r"""Actions whose weighted sum estimates an expectation under the policy without choosing a component.

    Attributes:
        actions: one action of each component, reparameterised, ``[B, M, A]``.
        log_prob: log-density of each under the *whole* policy, ``[B, M]``.
        weights: weight of each, ``[B, M]``, sum 1.
    """

    actions: Tensor
    log_prob: Tensor
    weights: Tensor

    def expectation(self, values_BM: Tensor) -> Tensor:
        r"""Return :math:`\sum_k w_k\, v_k`, ``[B]``: unbiased, and differentiable in weights, means and deviations.

        The SAC loss is the mean of ``samples.expectation(alpha * samples.log_prob - q_BM)``.

        Source: marginalised reparameterisation, He et al. 2026 (arXiv 2605.09157).
        """
        return (self.weights * values_BM).sum(dim=-1)


@dataclass(frozen=True)
class TanhGaussian:
    r""":math:`a = \tanh(u), \quad u \sim \mathcal N(\mu, \mathrm{diag}\,\sigma^2)`.

    Attributes:
        mean: μ, ``[B, A]``.
        std: σ > 0, ``[B, A]``.
    """

    mean: Tensor
    std: Tensor

    def log_prob(self, u_BA: Tensor) -> Tensor:
        """Log-density of ``tanh(u)``, ``[B]``."""
        return squashed_log_prob(u_BA, self.mean, self.std)

    def sample(self, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Draw reparameterised actions ``[B, A]`` and return them with their log-densities ``[B]``."""
        return squashed_sample(self.mean, self.std.log(), _noise_like(self.mean, generator))

    def weighted_samples(self, generator: torch.Generator | None = None) -> WeightedSamples:
        """Draw as :meth:`sample` does: one component of weight 1."""
        action_BA, log_prob_B = self.sample(generator)
        log_prob_B1 = log_prob_B.unsqueeze(1)
        return WeightedSamples(action_BA.unsqueeze(1), log_prob_B1, torch.ones_like(log_prob_B1))

    def mode(self) -> Tensor:
        """The action tanh(μ), ``[B, A]``."""
        return self.mean.tanh()

    def kl(self, other: TanhGaussian, generator: torch.Generator | None = None) -> Tensor:
        """Divergence KL(self || other), ``[B]``, in closed form (the squashing does not change it)."""
        ratio = self.std / other.std
        shift = (self.mean - other.mean) / other.std
        return (0.5 * (ratio.square() + shift.square() - 1) - ratio.log()).sum(dim=-1)


@dataclass(frozen=True)
class TanhMixture:
    r""":math:`a = \tanh(u), \quad u \sim \sum_k w_k\, \mathcal N(\mu_k, \mathrm{diag}\,\sigma_k^2)`.

    Attributes:
        log_weights: log w, ``[B, M]``, normalised.
        mean: μ, ``[B, M, A]``, or ``[1, M, A]`` where all states share the components.
        std: σ > 0, shape of ``mean``.
    """

    log_weights: Tensor
    mean: Tensor
    std: Tensor

    def log_prob(self, u_BA: Tensor) -> Tensor:
        """Log-density of ``tanh(u)``, ``[B]``."""
        return self._log_prob(u_BA.unsqueeze(1)).squeeze(1)

    @torch.no_grad()
    def sample(self, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Draw a component, then an action; return actions ``[B, A]`` and log-densities ``[B]``, without gradient.

        A gradient through the drawn component would miss how the weights act; train through :meth:`weighted_samples`.
        """
        component_B1A = (
            torch.multinomial(self.log_weights.exp(), 1, generator=generator).unsqueeze(-1).expand(-1, 1, self.mean.shape[-1])
        )
        mean_BA, std_BA = (
            x.expand(len(self.log_weights), -1, -1).gather(1, component_B1A).squeeze(1) for x in (self.mean, self.std)
        )
        u_BA = mean_BA + std_BA * _noise_like(mean_BA, generator)
        return u_BA.tanh(), self.log_prob(u_BA)

    def weighted_samples(self, generator: torch.Generator | None = None) -> WeightedSamples:
        """Draw one reparameterised action of every component."""
        u_BMA = self._draw_all(generator)
        return WeightedSamples(u_BMA.tanh(), self._log_prob(u_BMA), self.log_weights.exp())

    def mode(self) -> Tensor:
        """The squashed mean of the heaviest component, ``[B, A]``."""
        heaviest_B1A = self.log_weights.argmax(dim=1)[:, None, None].expand(-1, 1, self.mean.shape[-1])
        return self.mean.expand(len(self.log_weights), -1, -1).gather(1, heaviest_B1A).squeeze(1).tanh()

    def kl(self, other: TanhMixture, generator: torch.Generator | None = None) -> Tensor:
        """Monte-Carlo estimate of KL(self || other), ``[B]``, from one draw of every component."""
        u_BMA = self._draw_all(generator)
        return (self.log_weights.exp() * (self._log_prob(u_BMA) - other._log_prob(u_BMA))).sum(dim=-1)

    def _draw_all(self, generator: torch.Generator | None) -> Tensor:
        shape = (*self.log_weights.shape, self.mean.shape[-1])
        return self.mean + self.std * _noise_like(self.mean.expand(shape), generator)

    def _log_prob(self, u_BSA: Tensor) -> Tensor:
        """Log-density of several actions a state, ``[B, S]``."""
        each_BSM = normal_log_prob(u_BSA.unsqueeze(2), self.mean.unsqueeze(1), self.std.unsqueeze(1))
        return (self.log_weights.unsqueeze(1) + each_BSM).logsumexp(dim=-1) - tanh_log_jacobian(u_BSA)


Policy = TanhGaussian | TanhMixture


def _noise_like(x: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)
