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
        """Return mean and standard deviation before squashing, each ``[B, m]``."""
        mean_Bm, log_std_Bm = self.network(obs_Bn).chunk(2, dim=-1)
        return mean_Bm, log_std_Bm.clamp(*LOG_STD_BOUNDS).exp()

    def sample(self, obs_Bn: Tensor) -> tuple[Tensor, Tensor]:
        """Draw actions ``[B, m]``, differentiably, with their log-densities ``[B]``."""
        mean_Bm, std_Bm = self(obs_Bn)
        u_Bm = torch.addcmul(mean_Bm, std_Bm, torch.randn_like(mean_Bm))
        return u_Bm.tanh(), squashed_log_prob(u_Bm, mean_Bm, std_Bm)

    def mode(self, obs_Bn: Tensor) -> Tensor:
        """Return the deterministic action, ``[B, m]``."""
        return self(obs_Bn)[0].tanh()
