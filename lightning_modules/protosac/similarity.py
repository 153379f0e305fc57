"""How much a state looks like each prototype, and the weights that follow (plain torch).

Shape suffixes: B batch, K prototypes, M prototypes that act, d latent size.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

Similarity = Literal["log", "linear", "cosine"]
SIMILARITIES = ("log", "linear", "cosine")
_SMALLEST_NORM = 1e-6


def squared_distances(z_Bd: Tensor, P_Kd: Tensor) -> Tensor:
    r"""Return :math:`D_{bk} = \lVert z_b - p_k \rVert^2`, ``[B, K]``; where z = p it is exactly 0 and so is its gradient."""
    return (z_Bd.unsqueeze(1) - P_Kd).square().sum(dim=-1)


def log_similarity(D_BK: Tensor, eps: float = 1e-4) -> Tensor:
    r"""Turn squared distances into similarities.

    .. math::
        \mathrm{sim} = \log \frac{D + 1}{D + \epsilon} = \mathrm{log1p}\Bigl( \frac{1 - \epsilon}{D + \epsilon} \Bigr)

    It falls from :math:`\log(1/\epsilon)` at D = 0 to 0; the second form keeps its digits at large D.

    Source: ProtoPNet (Chen et al. 2019), PW-Net (Kenny et al. 2023).
    """
    return ((1 - eps) / (D_BK + eps)).log1p()


def similarity_logits(
    z_Bd: Tensor, P_Kd: Tensor, similarity: Similarity = "log", temperature: float = 0.2, eps: float = 1e-4
) -> Tensor:
    r"""Return logits whose softmax over the prototypes is the weight w.

    ========== ================================= ====================================
    similarity logit                             weight
    ========== ================================= ====================================
    log        :math:`\mathrm{sim}_k / \tau`     :math:`\propto ((D_k+1)/(D_k+\epsilon))^{1/\tau}`
    linear     :math:`\log \mathrm{sim}_k`       :math:`\mathrm{sim}_k / \sum_l \mathrm{sim}_l`, no temperature
    cosine     :math:`\cos(z, p_k) / \tau`       :math:`\mathrm{softmax}(\cos / \tau)`
    ========== ================================= ====================================

    Args:
        z_Bd: embedded states.
        P_Kd: prototypes.
        similarity: a row of the table.
        temperature: τ.
        eps: ε of :func:`log_similarity`.

    Returns:
        Logits, ``[B, K]``.
    """
    if similarity == "cosine":
        directions_Bd, directions_Kd = (functional.normalize(x, dim=-1, eps=_SMALLEST_NORM) for x in (z_Bd, P_Kd))
        return directions_Bd @ directions_Kd.T / temperature
    sim_BK = log_similarity(squared_distances(z_Bd, P_Kd), eps)
    return sim_BK.log() if similarity == "linear" else sim_BK / temperature


def top_weights(logits_BK: Tensor, top_m: int) -> tuple[Tensor, Tensor]:
    """Keep the largest weights of each state and renormalise them.

    Returns:
        Logarithms of the kept weights, falling, and the prototypes that they belong to, both ``[B, M]``.
    """
    kept_BM, index_BM = torch.topk(logits_BK, top_m, dim=-1)
    return kept_BM.log_softmax(dim=-1), index_BM
