"""Networks of TD7: an encoder of states and of state-action pairs, and an actor and critics that read them (plain torch).

Legend: B batch, J critics, n observation, m action, d latent, h hidden.

Source: Fujimoto et al. 2023, "For SALE" (arXiv 2306.02451), appendix A.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from lightning_modules.r2r2.elu import elu
from lightning_modules.rl.networks import EnsembleLinear

Activation = Callable[[Tensor], Tensor]


def avg_l1_norm(x: Tensor, eps: float = 1e-8) -> Tensor:
    r"""Divide by the mean absolute value along the last axis.

    .. math::
        \mathrm{AvgL1Norm}(x) = \frac{x}{\max(\frac1d \sum_i \lvert x_i \rvert, \epsilon)}
    """
    return x / x.abs().mean(dim=-1, keepdim=True).clamp_min(eps)


class EnsembleLayerNorm(nn.Module):
    """J layer normalisations side by side, ``[J, B, h]`` to ``[J, B, h]``."""

    def __init__(self, members: int, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(members, 1, hidden))
        self.bias = nn.Parameter(torch.zeros(members, 1, hidden))

    def forward(self, x_JBh: Tensor) -> Tensor:
        return torch.addcmul(self.bias, functional.layer_norm(x_JBh, x_JBh.shape[-1:]), self.weight)


class Perceptron(nn.Module):
    """Two hidden layers and a linear last one.

    Args:
        in_dim, hidden, out_dim: sizes.
        activation: of the hidden layers.
        layer_norm: normalise the hidden layers before their activation.
    """

    def __init__(self, in_dim: int, hidden: int, out_dim: int, activation: Activation, layer_norm: bool = False) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(in_dim, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, out_dim)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(2)) if layer_norm else None
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        if self.norms is None:
            return self.last(self.activation(self.second(self.activation(self.first(x)))))
        for linear, norm in zip((self.first, self.second), self.norms, strict=True):
            x = self.activation(norm(linear(x)))
        return self.last(x)


class TD7Encoder(nn.Module):
    """State-action embeddings, which predict the next state's embedding.

    Args:
        obs_dim: length n of an observation.
        action_dim: length m of an action.
        latent_dim: length d of both embeddings.
        hidden: width of the hidden layers.
        layer_norm: normalise the hidden layers before their activation.
    """

    def __init__(self, obs_dim: int, action_dim: int, latent_dim: int = 256, hidden: int = 256, layer_norm: bool = False) -> None:
        super().__init__()
        self.state = Perceptron(obs_dim, hidden, latent_dim, elu, layer_norm)
        self.state_action = Perceptron(latent_dim + action_dim, hidden, latent_dim, elu, layer_norm)

    def zs(self, obs_Bn: Tensor) -> Tensor:
        """Embed states, ``[B, d]``; the mean absolute value of each embedding is 1."""
        return avg_l1_norm(self.state(obs_Bn))

    def zsa(self, z_Bd: Tensor, action_Bm: Tensor) -> Tensor:
        """Predict the embeddings of the next states, ``[B, d]``."""
        return self.state_action(torch.cat([z_Bd, action_Bm], dim=-1))


class TD7Actor(nn.Module):
    """A deterministic policy that reads states and their embeddings.

    Args:
        obs_dim: length n of an observation.
        action_dim: length m of an action.
        latent_dim: length d of an embedding.
        hidden: width of the hidden layers, and of the normalised layer that reads the observation.
        layer_norm: normalise the hidden layers before their activation.
    """

    def __init__(self, obs_dim: int, action_dim: int, latent_dim: int = 256, hidden: int = 256, layer_norm: bool = False) -> None:
        super().__init__()
        self.read = nn.Linear(obs_dim, hidden)
        self.network = Perceptron(hidden + latent_dim, hidden, action_dim, torch.relu, layer_norm)

    def forward(self, obs_Bn: Tensor, z_Bd: Tensor) -> Tensor:
        """Return actions in [-1, 1], ``[B, m]``."""
        return self.network(torch.cat([avg_l1_norm(self.read(obs_Bn)), z_Bd], dim=-1)).tanh()


class TD7Critics(nn.Module):
    """J action values that read states, actions and both embeddings, evaluated together.

    Args:
        obs_dim: length n of an observation.
        action_dim: length m of an action.
        latent_dim: length d of an embedding.
        hidden: width of the hidden layers, and of the normalised layer that reads observation and action.
        layer_norm: normalise the hidden layers before their activation.
        members: number J of critics.
    """

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        latent_dim: int = 256,
        hidden: int = 256,
        layer_norm: bool = False,
        members: int = 2,
    ) -> None:
        super().__init__()
        self.members = members
        self.read = EnsembleLinear(members, obs_dim + action_dim, hidden)
        self.first = EnsembleLinear(members, hidden + 2 * latent_dim, hidden)
        self.second, self.last = EnsembleLinear(members, hidden, hidden), EnsembleLinear(members, hidden, 1)
        self.norms = nn.ModuleList(EnsembleLayerNorm(members, hidden) for _ in range(2)) if layer_norm else None

    def forward(self, obs_Bn: Tensor, action_Bm: Tensor, zsa_Bd: Tensor, zs_Bd: Tensor) -> Tensor:
        """Return the values, ``[J, B]``."""
        read_JBh = avg_l1_norm(self.read(self._for_all(obs_Bn, action_Bm)))
        # one product for each part of the input: where embeddings need no gradient, none is computed
        reading, embedding = self.first.weight.split([read_JBh.shape[-1], 2 * zs_Bd.shape[-1]], dim=1)
        x_JBh = torch.baddbmm(self.first.bias, read_JBh, reading).baddbmm(self._for_all(zsa_Bd, zs_Bd), embedding)
        if self.norms is None:
            return self.last(elu(self.second(elu(x_JBh)))).squeeze(-1)
        x_JBh = self.second(elu(self.norms[0](x_JBh)))
        return self.last(elu(self.norms[1](x_JBh))).squeeze(-1)

    def _for_all(self, *parts: Tensor) -> Tensor:
        """Join the features that all critics see, ``[J, B, features]``."""
        return torch.cat(parts, dim=-1).expand(self.members, -1, -1)
