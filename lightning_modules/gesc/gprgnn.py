"""GPR-GNN: a learned polynomial of the graph filters what a perceptron says of each node."""

import torch
from torch import Tensor, nn

from lightning_modules.gesc.adjacency import normalised_adjacency
from lightning_modules.gesc.baselines import MLP
from lightning_modules.gesc.sparse_product import sparse_product


class GPRGNN(nn.Module):
    r"""Generalised PageRank on a perceptron's output.

    .. math::
        \text{logits} = \sum_{k=0}^K \gamma_k \hat A^k z, \qquad z = \mathrm{MLP}(x), \qquad
        \hat A = \tilde D^{-1/2} (A + I) \tilde D^{-1/2}

    The weights are learned from :math:`\gamma_k = \alpha (1-\alpha)^k` and :math:`\gamma_K = (1-\alpha)^K`, personalised PageRank.

    Args:
        in_channels: features of a node.
        out_channels: classes.
        hidden: width of the perceptron.
        layers: its layers.
        dropout: inside the perceptron.
        order: K.
        alpha: restart probability of the initial weights.
        propagation_dropout: on z.

    Source: Chien et al. 2021 (arXiv 2006.07988).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        hidden: int = 64,
        layers: int = 2,
        dropout: float = 0.5,
        order: int = 10,
        alpha: float = 0.1,
        propagation_dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.mlp = MLP(in_channels, out_channels, hidden, layers, dropout)
        self.propagation_dropout = propagation_dropout
        weights = alpha * (1 - alpha) ** torch.arange(order + 1)
        weights[-1] = (1 - alpha) ** order
        self.weights = nn.Parameter(weights)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return logits, ``[N, C]``."""
        z_NC = nn.functional.dropout(self.mlp(x, edge_index), self.propagation_dropout, self.training)
        adjacency = normalised_adjacency(edge_index, len(x), z_NC.dtype)
        logits_NC = self.weights[0] * z_NC
        for weight in self.weights[1:]:
            z_NC = sparse_product(adjacency, z_NC)
            logits_NC = logits_NC + weight * z_NC
        return logits_NC
