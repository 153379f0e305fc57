"""In how many directions features really spread.

Shape suffixes: N samples, d features, r = min(N, d).
"""

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric


def singular_values(features_Nd: Tensor, center: bool = False) -> Tensor:
    """Return the singular values, ``[r]``, falling; with ``center`` those of the features minus their mean.

    Raises:
        ValueError: if the features are no matrix, or not finite.
    """
    if features_Nd.ndim != 2:
        raise ValueError(f"effective rank needs features [samples, features], got {list(features_Nd.shape)}: flatten them")
    if not features_Nd.isfinite().all():
        raise ValueError("effective rank needs finite features, these contain NaN or infinity: lower the learning rate")
    features_Nd = features_Nd if features_Nd.dtype == torch.float64 else features_Nd.float()
    return torch.linalg.svdvals(features_Nd - features_Nd.mean(dim=0) if center else features_Nd)


def effective_rank(features_Nd: Tensor, center: bool = False) -> Tensor:
    r"""Return the exponential of the entropy of the normalised singular values, a scalar.

    .. math::
        \mathrm{erank}(Z) = \exp\Big( -\sum_i p_i \log p_i \Big), \qquad p_i = \frac{\sigma_i}{\sum_j \sigma_j}

    It is between 1 and r, and r only if all singular values are equal; features that are all zero have 0.

    Args:
        features_Nd: features, shape ``[N, d]``.
        center: take the mean of each feature off first.

    Raises:
        ValueError: if the features are no matrix, or not finite.

    Source: Roy and Vetterli 2007, "The effective rank".
    """
    sigma_r = singular_values(features_Nd, center)
    p_r = sigma_r / sigma_r.sum().clamp_min(torch.finfo(sigma_r.dtype).tiny)
    return torch.special.entr(p_r).sum().exp() * (p_r > 0).any()


class EffectiveRank(Metric):
    """Effective rank of all features that were seen, on all ranks.

    Args:
        center: take the mean of each feature off first.
        limit: samples that each rank keeps, the first ones; None keeps all.

    Raises:
        ValueError: if ``limit`` is not positive.
    """

    features: list[Tensor]

    def __init__(self, center: bool = False, limit: int | None = 10_000, **options: Any) -> None:
        super().__init__(**options)
        if limit is not None and limit < 1:
            raise ValueError(f"limit of EffectiveRank must be 1 or more, got {limit}")
        self.center, self.limit = center, limit
        self.add_state("features", [], dist_reduce_fx="cat")

    def update(self, features_Nd: Tensor) -> None:
        """Keep the features of some samples, ``[N, d]``."""
        kept = sum(map(len, self.features))
        room = len(features_Nd) if self.limit is None else self.limit - kept
        if room > 0:
            self.features.append(features_Nd[:room].detach())

    def compute(self) -> Tensor:
        """Return the effective rank, a scalar."""
        features = self.features if isinstance(self.features, Tensor) else torch.cat(self.features)
        return effective_rank(features, self.center)
