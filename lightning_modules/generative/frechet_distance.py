"""Distance between two sets of samples by the means and covariances of their features.

Legend: n samples, F features.
"""

import torch
from torch import Tensor
from torchmetrics import Metric


def frechet_distance(mean_F: Tensor, covariance_FF: Tensor, other_mean_F: Tensor, other_covariance_FF: Tensor) -> Tensor:
    r"""Return the squared Fréchet distance of two normal distributions, a scalar.

    .. math::
        \lVert \mu_1 - \mu_2 \rVert^2 + \operatorname{tr} \bigl( \Sigma_1 + \Sigma_2
            - 2 (\Sigma_1^{1/2} \Sigma_2 \Sigma_1^{1/2})^{1/2} \bigr)

    The roots are those of symmetric matrices, so it stays real where a covariance is singular.

    Source: Dowson and Landau 1982; Heusel et al. 2017 (arXiv 1706.08500).
    """
    values_F, vectors_FF = torch.linalg.eigh(covariance_FF)
    root_FF = vectors_FF * values_F.clamp_min(0).sqrt() @ vectors_FF.T
    cross = torch.linalg.eigvalsh(root_FF @ other_covariance_FF @ root_FF).clamp_min(0).sqrt().sum()
    return (mean_F - other_mean_F).square().sum() + covariance_FF.trace() + other_covariance_FF.trace() - 2 * cross


class FrechetFeatureDistance(Metric):
    """Squared Fréchet distance between real and generated samples in the features of a network of your choice.

    It is **not** the FID of papers, whose features are those of an Inception network trained on ImageNet: compare it only with
    values of the same features and the same number of samples.

    Args:
        num_features: features F of a sample.

    Raises:
        ValueError: if features have another shape, or one of both kinds has less than two samples.
    """

    count: Tensor
    total: Tensor
    products: Tensor
    higher_is_better = False
    full_state_update = False

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.num_features = num_features
        self.add_state("count", torch.zeros(2, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("total", torch.zeros(2, num_features, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("products", torch.zeros(2, num_features, num_features, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, features_nF: Tensor, real: bool) -> None:
        """Add the features of some samples, ``[n, F]``, real or generated ones."""
        if features_nF.ndim != 2 or features_nF.shape[1] != self.num_features:
            raise ValueError(f"features of shape {list(features_nF.shape)}, expected [n, {self.num_features}]")
        kind, features_nF = int(real), features_nF.double()
        self.count[kind] += len(features_nF)
        self.total[kind] += features_nF.sum(dim=0)
        self.products[kind] += features_nF.T @ features_nF

    def compute(self) -> Tensor:
        if (self.count < 2).any():
            made, real = self.count.tolist()
            raise ValueError(f"a Fréchet distance needs two samples of each kind, got {real:g} real and {made:g} generated")
        count_21 = self.count[:, None]
        mean_2F = self.total / count_21
        outer_2FF = mean_2F[:, :, None] * mean_2F[:, None, :]
        covariance_2FF = (self.products - count_21[..., None] * outer_2FF) / (count_21[..., None] - 1)
        return frechet_distance(mean_2F[0], covariance_2FF[0], mean_2F[1], covariance_2FF[1]).float()
