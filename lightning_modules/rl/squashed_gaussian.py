"""Gaussians squashed into [-1, 1] by a hyperbolic tangent, and the actor of soft actor-critic (plain torch).

Legend: B batch, n observation, m action.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from lightning_modules.rl.networks import mlp

LOG_STD_BOUNDS = (-5.0, 2.0)
_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


def tanh_log_jacobian(u: Tensor) -> Tensor:
    r"""Return :math:`\log \lvert \det \partial \tanh(u) / \partial u \rvert`, summed over the last axis.

    .. math::
        \log (1 - \tanh^2 u) = 2 (\log 2 - u - \mathrm{softplus}(-2u)),

    which is finite, and has finite gradients, for every finite u.
    """
    return 2 * (math.log(2) - u - functional.softplus(-2 * u)).sum(dim=-1)


def normal_log_prob(u: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Return the log-density of a diagonal Gaussian, summed over the last axis."""
    return -(0.5 * ((u - mean) / std).square() + std.log() + _HALF_LOG_TWO_PI).sum(dim=-1)


def squashed_log_prob(u: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    r"""Return the log-density of the action :math:`a = \tanh u` where u is Gaussian, as a function of u."""
    return normal_log_prob(u, mean, std) - tanh_log_jacobian(u)


def squashed_sample(mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return the action :math:`a = \tanh u,\ u = \mu + \sigma \epsilon`, and its log-density, both differentiable.

    In terms of the noise the density needs no division, and loses no digits to one:

    .. math::
        \log \pi(a) = -\sum_j \bigl( \tfrac12 \epsilon_j^2 + \log \sigma_j + \tfrac12 \log 2\pi \bigr)
            - \log \lvert \det \partial \tanh(u) / \partial u \rvert
    """
    u = torch.addcmul(mean, log_std.exp(), noise)
    squashing = 2 * (u + functional.softplus(-2 * u))
    per_dimension = torch.add(noise.square(), log_std, alpha=2) - 2 * squashing
    constant = (_HALF_LOG_TWO_PI + 2 * math.log(2)) * u.shape[-1]
    return u.tanh(), -0.5 * per_dimension.sum(dim=-1) - constant


class GaussianActor(nn.Module):
    """A tanh-Gaussian policy whose mean and deviation are read from the observation by one perceptron.

    Args:
        obs_dim: length n of an observation.
        action_dim: length m of an action.
        hidden: widths of the hidden layers.

    Source: soft actor-critic, Haarnoja et al. 2018 (arXiv 1812.05905).
    """

    def __init__(self, obs_dim: int, action_dim: int, hidden: Sequence[int] = (256, 256)) -> None:
        super().__init__()
        self.network = mlp([obs_dim, *hidden, 2 * action_dim])

    def forward(self, obs_Bn: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and logarithm of the deviation before squashing, each ``[B, m]``."""
        mean_Bm, log_std_Bm = self.network(obs_Bn).chunk(2, dim=-1)
        return mean_Bm, log_std_Bm.clamp(*LOG_STD_BOUNDS)

    def sample(self, obs_Bn: Tensor) -> tuple[Tensor, Tensor]:
        """Draw actions ``[B, m]``, differentiably, with their log-densities ``[B]``."""
        mean_Bm, log_std_Bm = self(obs_Bn)
        return squashed_sample(mean_Bm, log_std_Bm, torch.randn_like(mean_Bm))

    def mode(self, obs_Bn: Tensor) -> Tensor:
        """Return the deterministic action, ``[B, m]``."""
        return self(obs_Bn)[0].tanh()
