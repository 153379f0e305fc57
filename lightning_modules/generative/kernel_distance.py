"""Distance between two sets of samples by a polynomial kernel of their features.

Legend: n samples, F features.
"""

import torch
from torch import Tensor
from torchmetrics import Metric

MOST_FEATURES = 256


class KernelFeatureDistance(Metric):
    r"""Squared maximum mean discrepancy of real and generated samples with the cubic kernel of KID, unbiased.

    .. math::
        \widehat{\mathrm{MMD}}^2 = \tfrac{1}{n(n-1)} \sum_{i \ne j} k(x_i, x_j) + \tfrac{1}{m(m-1)} \sum_{i \ne j} k(y_i, y_j)
            - \tfrac{2}{nm} \sum_{i,j} k(x_i, y_j), \qquad k(x, y) = \bigl( \tfrac{x^\top y}{F} + 1 \bigr)^3

    All pairs count: the sums are products of the moments of the features up to the third, which are what is kept and what several
    processes add up. It can be a little below 0. It is **not** the KID of papers, whose features are those of an Inception network.

    Args:
        num_features: features F of a sample.

    Raises:
        ValueError: if there are too many features to keep third moments of, features have another shape, or one of both kinds has
            less than two samples.

    Source: Bińkowski et al. 2018 (arXiv 1801.01401), section 4.
    """

    count: Tensor
    first: Tensor
    second: Tensor
    third: Tensor
    own: Tensor
    higher_is_better = False
    full_state_update = False

    def __init__(self, num_features: int) -> None:
        super().__init__()
        if num_features > MOST_FEATURES:
            raise ValueError(f"{num_features} features have too many third moments: use at most {MOST_FEATURES}")
        self.num_features = num_features
        orders = {"count": 0, "own": 0, "first": 1, "second": 2, "third": 3}
        for name, order in orders.items():
            shape = (2, *[num_features] * order)
            self.add_state(name, torch.zeros(shape, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, features_nF: Tensor, real: bool) -> None:
        """Add the features of some samples, ``[n, F]``, real or generated ones."""
        if features_nF.ndim != 2 or features_nF.shape[1] != self.num_features:
            raise ValueError(f"features of shape {list(features_nF.shape)}, expected [n, {self.num_features}]")
        kind, features_nF = int(real), features_nF.double()
        pairs_nFF = features_nF[:, :, None] * features_nF[:, None, :]
        self.count[kind] += len(features_nF)
        self.own[kind] += (features_nF.square().sum(dim=1) / self.num_features + 1).pow(3).sum()
        self.first[kind] += features_nF.sum(dim=0)
        self.second[kind] += pairs_nFF.sum(dim=0)
        self.third[kind] += (pairs_nFF.flatten(1).T @ features_nF).view_as(self.third[kind])

    def compute(self) -> Tensor:
        if (self.count < 2).any():
            made, real = self.count.tolist()
            raise ValueError(f"a kernel distance needs two samples of each kind, got {real:g} real and {made:g} generated")

        def total(one: int, other: int) -> Tensor:
            first, second, third = ((m[one] * m[other]).sum() for m in (self.first, self.second, self.third))
            size = self.num_features
            return self.count[one] * self.count[other] + 3 * first / size + 3 * second / size**2 + third / size**3

        made, real = self.count
        within = [(total(kind, kind) - self.own[kind]) / (n * (n - 1)) for kind, n in enumerate((made, real))]
        return (within[0] + within[1] - 2 * total(0, 1) / (made * real)).float()
