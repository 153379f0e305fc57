"""What keeps prototypes apart and weights broad, and how broad they are (plain torch).

Shape suffixes: B batch, K prototypes, d latent size.
"""

import torch
from torch import Tensor
from torch.nn import functional


def orthogonality(P_Kd: Tensor) -> Tensor:
    r"""Mean squared cosine between different prototypes; small where they spread over the latent space.

    .. math::
        L_\text{orth} = \frac{1}{K (K - 1)} \sum_{k \ne l} \cos(p_k, p_l)^2 \ \ge\ \frac{K - d}{d (K - 1)} \quad (K > d)

    The bound is Welch's: with more prototypes than dimensions the loss cannot reach 0. A single prototype gives 0.
    """
    K = len(P_Kd)
    directions_Kd = functional.normalize(P_Kd, dim=-1)
    cosines_KK = (directions_Kd @ directions_Kd.T).masked_fill(torch.eye(K, dtype=torch.bool, device=P_Kd.device), 0.0)
    return cosines_KK.square().sum() / max(K * (K - 1), 1)


def negative_entropy(weights_BK: Tensor) -> Tensor:
    r"""Return :math:`L_\text{ent} = \mathrm{mean}_s \sum_k w_k \log w_k`, in [-log K, 0]; weights of exactly 0 are allowed."""
    return -_entropy(weights_BK).mean()


def effective_prototypes(weights_BK: Tensor) -> Tensor:
    r"""Return :math:`\mathrm{mean}_s \exp H(w)`, in [1, K]: on how many prototypes a decision leans."""
    return _entropy(weights_BK).exp().mean()


def _entropy(weights_BK: Tensor) -> Tensor:
    return -(weights_BK * weights_BK.clamp_min(torch.finfo(weights_BK.dtype).tiny).log()).sum(dim=-1)
