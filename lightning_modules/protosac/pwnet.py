"""Prototype wrappers: networks that imitate a trained actor by comparing its latent with prototypes (plain torch).

Shape suffixes: B batch, K prototypes, S slots of an action dimension, A action size, d latent size, w width.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from lightning_modules.protosac.similarity import log_similarity
from lightning_modules.rl.networks import EnsembleLinear

HARDEST = 1_000.0


class TransformedSimilarity(nn.Module):
    r"""Compare a latent with K prototypes, each in a space of its own.

    .. math::
        \mathrm{sim}_k = \log \frac{D_k + 1}{D_k + \epsilon}, \qquad D_k = \lVert T_k(z) - T_k(p_k) \rVert^2, \qquad
        T_k = \text{Linear} \circ \text{ReLU} \circ \text{InstanceNorm} \circ \text{Linear}

    A vector is one instance of one channel: its normalisation is over its own features, without learned scale, so that a state's
    similarity does not depend on the batch that it comes in. (This is also what ``nn.InstanceNorm1d`` does to ``[B, w]``, which
    it takes for B channels.)

    Args:
        latent_dim: d.
        num_prototypes: K.
        width: w of the transformations.

    Source: PW-Net, Kenny et al. 2023; with learned prototypes it is called PW-Net*.
    """

    def __init__(self, latent_dim: int, num_prototypes: int, width: int = 50) -> None:
        super().__init__()
        if num_prototypes < 1 or width < 2:
            raise ValueError(f"num_prototypes={num_prototypes} must be at least 1 and width={width} at least 2")
        self.prototypes = nn.Parameter(torch.randn(num_prototypes, latent_dim))
        self.first = EnsembleLinear(num_prototypes, latent_dim, width)
        self.second = EnsembleLinear(num_prototypes, width, width)

    def transform(self, z_KBd: Tensor) -> Tensor:
        """Apply the transformation of each prototype, ``[K, B, w]``."""
        hidden_KBw = self.first(z_KBd)
        return self.second(functional.layer_norm(hidden_KBw, hidden_KBw.shape[-1:]).relu())

    def forward(self, z_Bd: Tensor) -> Tensor:
        """Return the similarities, ``[B, K]``."""
        z_KBw = self.transform(z_Bd.expand(len(self.prototypes), -1, -1))
        p_K1w = self.transform(self.prototypes.unsqueeze(1))
        return log_similarity((z_KBw - p_K1w).square().sum(dim=-1)).T


class PWNet(nn.Module):
    r"""An action that is linear in the similarities, :math:`a = \tanh(W\, \mathrm{sim} + b)`.

    Args:
        latent_dim: length of the teacher's latent.
        action_dim: A.
        num_prototypes: K.
        width: of the transformations.

    Source: PW-Net, Kenny et al. 2023.
    """

    def __init__(self, latent_dim: int, action_dim: int, num_prototypes: int, width: int = 50) -> None:
        super().__init__()
        self.similarity = TransformedSimilarity(latent_dim, num_prototypes, width)
        self.head = nn.Linear(num_prototypes, action_dim)

    def forward(self, z_Bd: Tensor) -> Tensor:
        """Return actions, ``[B, A]``."""
        return self.head(self.similarity(z_Bd)).tanh()


class SharedPWNet(nn.Module):
    r"""One pool of prototypes that the slots of the action dimensions choose from.

    .. math::
        a_i = \tanh \Bigl( b_i + \sum_s v_{is} \sum_k q_{isk}\, \mathrm{sim}_k \Bigr), \qquad
        q_{is} = \mathrm{softmax}(c\, \ell_{is} + g), \quad g \sim \text{Gumbel}

    In training the choice q is soft and random, drawn once a batch; the growing sharpness c makes it hard and certain. In
    evaluation it is the prototype with the largest :math:`\ell_{is}`.

    Args:
        latent_dim: length of the teacher's latent.
        action_dim: A.
        num_prototypes: K.
        slots: S.
        width: of the transformations.

    Attributes:
        sharpness: c.

    Source: Shared-PW-Net, Borzillo et al. 2023; ProtoPool, Rymarczyk et al. 2022.
    """

    def __init__(self, latent_dim: int, action_dim: int, num_prototypes: int, slots: int, width: int = 50) -> None:
        super().__init__()
        if slots < 1:
            raise ValueError(f"slots={slots} must be at least 1")
        self.similarity = TransformedSimilarity(latent_dim, num_prototypes, width)
        self.choice = nn.Parameter(
            nn.init.xavier_normal_(torch.empty(action_dim * slots, num_prototypes)).unflatten(0, (-1, slots))
        )
        self.slot_weights = nn.Parameter(torch.linspace(-1, 1, slots).repeat(action_dim, 1))
        self.bias = nn.Parameter(torch.zeros(action_dim))
        self.sharpness = 1.0

    def anneal(self, progress: float) -> None:
        """Set the sharpness for this share of the training done: 1 at first, 1000 from its middle on."""
        self.sharpness = HARDEST ** min(2 * progress, 1.0)

    def assignment(self) -> Tensor:
        """Return what each slot takes of each prototype, ``[A, S, K]``, sum 1."""
        if self.training:
            return functional.gumbel_softmax(self.sharpness * self.choice, dim=-1)
        return functional.one_hot(self.choice.argmax(dim=-1), self.choice.shape[-1]).to(self.choice.dtype)

    def forward(self, z_Bd: Tensor) -> Tensor:
        """Return actions, ``[B, A]``."""
        head_AK = torch.einsum("as,ask->ak", self.slot_weights, self.assignment())
        return functional.linear(self.similarity(z_Bd), head_AK, self.bias).tanh()
