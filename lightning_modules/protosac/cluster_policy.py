"""A policy that knows a few states only: the centres of k-means, each with the mean action of its cluster (plain torch).

Shape suffixes: B batch, K clusters, N states, n observation, A action size.
"""

import torch
from torch import Tensor, nn

from lightning_modules.protosac.grounding import distances_to, distinct_rows, kmeans_plus_plus

ITERATIONS = 100


class ClusterPolicy(nn.Module):
    """Act as was done on average in the cluster whose centre is nearest, coordinates standardised.

    Args:
        obs_dim: n.
        action_dim: A.
        num_clusters: K.
    """

    center: Tensor
    scale: Tensor
    centroids: Tensor
    actions: Tensor

    def __init__(self, obs_dim: int, action_dim: int, num_clusters: int) -> None:
        super().__init__()
        if num_clusters < 1:
            raise ValueError(f"num_clusters={num_clusters} must be at least 1")
        self.register_buffer("center", torch.zeros(obs_dim))
        self.register_buffer("scale", torch.ones(obs_dim))
        self.register_buffer("centroids", torch.zeros(num_clusters, obs_dim))
        self.register_buffer("actions", torch.zeros(num_clusters, action_dim))

    def fit(self, obs_Nn: Tensor, action_NA: Tensor, seed: int = 0) -> None:
        """Find the clusters by k-means++ and Lloyd's iterations.

        A coordinate that never changes is left unscaled. A cluster that lost all its states is never the nearest.

        Args:
            obs_Nn: states.
            action_NA: what was done there.
            seed: seed of the first centres.

        Raises:
            ImportError: if SciPy is missing.
            ValueError: if fewer than K of the states are distinct.
        """
        K = len(self.centroids)
        if (distinct := len(distinct_rows(obs_Nn))) < K:
            raise ValueError(f"num_clusters={K} needs as many distinct states, there are {distinct}")
        try:
            from scipy.cluster.vq import kmeans2
        except ImportError as error:
            raise ImportError("the clusters need SciPy: pip install 'leyden[rl]'") from error
        self.center.copy_(obs_Nn.mean(dim=0))
        spread_n = obs_Nn.std(dim=0, correction=0)
        self.scale.copy_(torch.where(spread_n > 0, spread_n, 1.0))
        x_Nn = self._standardised(obs_Nn).cpu().double()
        first_K = kmeans_plus_plus(x_Nn, K, torch.Generator().manual_seed(seed))
        centroids, labels = map(torch.from_numpy, kmeans2(x_Nn.numpy(), x_Nn[first_K].numpy(), iter=ITERATIONS, minit="matrix"))
        members_NK = nn.functional.one_hot(labels.long(), K).to(action_NA)
        size_K1 = members_NK.sum(dim=0).unsqueeze(1)
        self.centroids.copy_(torch.where(size_K1.cpu() > 0, centroids, torch.inf))
        self.actions.copy_(members_NK.T @ action_NA / size_K1.clamp_min(1))

    def forward(self, obs_Bn: Tensor) -> Tensor:
        """Return actions, ``[B, A]``."""
        return self.actions[distances_to(self.centroids, self._standardised(obs_Bn)).argmin(dim=0)]

    def _standardised(self, obs_Bn: Tensor) -> Tensor:
        return (obs_Bn - self.center) / self.scale
