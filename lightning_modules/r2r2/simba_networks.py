"""Networks of SimbaV2, and of SimbaV2 with self-predictive learning (plain torch).

Legend: B batch, J critics, n observation, m action, d latent, K bins.

Source: SimbaV2 (arXiv 2502.15280), its code, and the code of R2R2 (arXiv 2605.14026).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from lightning_modules.r2r2.hypersphere import Embedder, HyperDense, LERPBlock, Scaler, l2_normalise
from lightning_modules.rl.networks import EnsembleLinear
from lightning_modules.rl.squashed_gaussian import squashed_sample

LOG_STD_BOUNDS = (-10.0, 2.0)
_TRUNCATED_STD = 0.87962566103423978
"""Standard deviation of a unit normal that is cut at 2."""


def dense(in_dim: int, out_dim: int, members: int | None = None) -> nn.Module:
    """Linear layer, or ``members`` of them side by side, with LeCun's normal weights and no bias at the start."""
    layer = EnsembleLinear(members, in_dim, out_dim) if members else nn.Linear(in_dim, out_dim)
    std = in_dim**-0.5 / _TRUNCATED_STD
    nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std)
    nn.init.zeros_(layer.bias)
    return layer


class Head(nn.Module):
    """Linear readout of a unit vector: dense, scaler, dense and a bias that starts at 0."""

    def __init__(self, width: int, out_dim: int, members: int | None = None) -> None:
        super().__init__()
        self.inner, self.outer = HyperDense(width, width, members), HyperDense(width, out_dim, members)
        self.scaler = Scaler(width, members=members)
        self.bias = nn.Parameter(torch.zeros((members, 1, out_dim) if members else (out_dim,)))

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.scaler(self.inner(x))) + self.bias


class Trunk(nn.Module):
    """From an input, and latents if there are any, to a unit vector.

    With latents the input is first projected to a unit vector of length ``width``, so that all parts have the same weight.

    Args:
        in_dim: length of the input.
        latent_dim: length of all latents together; 0: none.
        width: length of the result.
        blocks: LERP blocks after the embedder.
        members: networks side by side.
    """

    def __init__(self, in_dim: int, latent_dim: int, width: int, blocks: int, members: int | None = None) -> None:
        super().__init__()
        self.projection = dense(in_dim, width, members) if latent_dim else None
        self.embedder = Embedder(width + latent_dim if latent_dim else in_dim, width, members)
        self.blocks = nn.Sequential(*(LERPBlock(width, blocks, members) for _ in range(blocks)))

    def forward(self, x: Tensor, *latents: Tensor) -> Tensor:
        if self.projection is not None:
            x = torch.cat([l2_normalise(self.projection(x)), *latents], dim=-1)
        return self.blocks(self.embedder(x))


class SimbaActor(nn.Module):
    """A tanh-Gaussian policy on the hypersphere.

    Args:
        obs_dim: length n of an observation.
        action_dim: length m of an action.
        width: length of the hidden unit vectors.
        blocks: number of LERP blocks.
        latent_dim: length d of the latent of the observation that the policy also sees; 0: none.
    """

    def __init__(self, obs_dim: int, action_dim: int, width: int = 128, blocks: int = 1, latent_dim: int = 0) -> None:
        super().__init__()
        self.trunk = Trunk(obs_dim, latent_dim, width, blocks)
        self.mean, self.log_std = Head(width, action_dim), Head(width, action_dim)

    def forward(self, obs_Bn: Tensor, *latents_Bd: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and logarithm of the deviation before squashing, each ``[B, m]``."""
        x = self.trunk(obs_Bn, *latents_Bd)
        low, high = LOG_STD_BOUNDS
        return self.mean(x), low + 0.5 * (high - low) * (1 + self.log_std(x).tanh())

    def sample(self, obs_Bn: Tensor, *latents_Bd: Tensor) -> tuple[Tensor, Tensor]:
        """Draw actions ``[B, m]``, differentiably, with their log-densities ``[B]``."""
        mean_Bm, log_std_Bm = self(obs_Bn, *latents_Bd)
        return squashed_sample(mean_Bm, log_std_Bm, torch.randn_like(mean_Bm))

    def mode(self, obs_Bn: Tensor, *latents_Bd: Tensor) -> Tensor:
        """Return the deterministic action, ``[B, m]``."""
        return self(obs_Bn, *latents_Bd)[0].tanh()


class SimbaCritics(nn.Module):
    """J distributions over the value of the same state and action, evaluated together.

    Args:
        obs_dim: length n of an observation.
        action_dim: length m of an action.
        width: length of the hidden unit vectors.
        blocks: number of LERP blocks.
        num_bins: number K of bins.
        members: number J of critics.
        latent_dim: length d of the latents of state and predicted next state that the critics also see; 0: none.
    """

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        width: int = 512,
        blocks: int = 2,
        num_bins: int = 101,
        members: int = 1,
        latent_dim: int = 0,
    ) -> None:
        super().__init__()
        self.members = members
        self.trunk = Trunk(obs_dim + action_dim, 2 * latent_dim, width, blocks, members)
        self.head = Head(width, num_bins, members)

    def forward(self, obs_Bn: Tensor, action_Bm: Tensor, *latents_Bd: Tensor) -> Tensor:
        """Return the logits, ``[J, B, K]``."""
        x_Bi = torch.cat([obs_Bn, action_Bm], dim=-1)
        return self.head(self.trunk(*(x.expand(self.members, -1, -1) for x in (x_Bi, *latents_Bd))))


class LatentModel(nn.Module):
    """Predict the latent of the next state; both are unit vectors.

    Args:
        latent_dim: length d of a latent.
        action_dim: length m of an action.
        width: width of the two hidden layers.
    """

    def __init__(self, latent_dim: int, action_dim: int, width: int = 256) -> None:
        super().__init__()
        self.first, self.second = dense(latent_dim + action_dim, width), dense(width, width)
        self.last = dense(width, latent_dim)

    def forward(self, z_Bd: Tensor, action_Bm: Tensor) -> Tensor:
        """Return the predicted latents, ``[B, d]``."""
        x = functional.elu(self.first(torch.cat([z_Bd, action_Bm], dim=-1)))
        return l2_normalise(self.last(functional.elu(self.second(x))))
