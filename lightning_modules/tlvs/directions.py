"""One direction a layer from the differences that the image makes to the hidden states.

Legend: L layers, S steps, d width.
"""

from typing import Literal, get_args

import torch
from torch import Tensor

Refinement = Literal["pc1", "mean", "weighted", "mean_all"]


def refine_directions(
    difference_LSd: Tensor,
    selected_S: Tensor,
    sensitivity_S: Tensor,
    refinement: Refinement = "pc1",
    nuisance_rank: int = 0,
) -> Tensor:
    r"""Return the unit direction of each layer, float32 ``[L, d]``.

    ========== ======================================================================================================
    refinement direction, from :math:`D_{l,s} = h^\text{image}_{l,s} - h^\text{blind}_{l,s}`
    ========== ======================================================================================================
    pc1        first right singular vector of the selected D, not centred, with the sign of their mean along it
    mean       mean of the selected D
    weighted   mean of the selected D, weighted by their sensitivity
    mean_all   mean of all D: what steering with one average does
    ========== ======================================================================================================

    Args:
        difference_LSd: D, ``[L, S, d]``.
        selected_S: sensitive steps, bool ``[S]``.
        sensitivity_S: s, ``[S]``.
        refinement: see above.
        nuisance_rank: remove so many leading singular directions of the steps that are not selected.

    Raises:
        ValueError: if the refinement is unknown, or no step is selected.

    Source: a reading of TLVS's abstract (arXiv 2606.07647).
    """
    if refinement not in get_args(Refinement):
        raise ValueError(f"refinement={refinement!r} is unknown: use one of {', '.join(get_args(Refinement))}")
    if not selected_S.any():
        raise ValueError("no step is selected: raise rho or calibrate on more text")
    difference_LSd = difference_LSd.double()
    sensitive_LSd = difference_LSd[:, selected_S]
    mean_Ld = sensitive_LSd.mean(dim=1)
    if refinement == "mean_all":
        direction_Ld = difference_LSd.mean(dim=1)
    elif refinement == "mean":
        direction_Ld = mean_Ld
    elif refinement == "weighted":
        direction_Ld = torch.einsum("s,lsd->ld", sensitivity_S[selected_S].double(), sensitive_LSd)
    else:
        direction_Ld = _leading(sensitive_LSd, 1)[..., 0]
        direction_Ld = direction_Ld * torch.where((direction_Ld * mean_Ld).sum(dim=-1, keepdim=True) < 0, -1.0, 1.0)
    if nuisance_rank:
        nuisance_Ldm = _leading(difference_LSd[:, ~selected_S], nuisance_rank)
        direction_Ld = direction_Ld - torch.einsum("ldm,lem,le->ld", nuisance_Ldm, nuisance_Ldm, direction_Ld)
    return torch.nn.functional.normalize(direction_Ld, dim=-1).float()


def signal_to_noise(difference_LSd: Tensor) -> Tensor:
    r"""Return :math:`\lVert \bar D \rVert^2 / \operatorname{tr} \operatorname{Cov}(D)` of each layer, ``[L]``."""
    difference_LSd = difference_LSd.double()
    mean_L1d = difference_LSd.mean(dim=1, keepdim=True)
    noise_L = (difference_LSd - mean_L1d).square().sum(dim=-1).mean(dim=1)
    return (mean_L1d.square().sum(dim=-1).squeeze(1) / noise_L).float()


def _leading(values_LSd: Tensor, rank: int) -> Tensor:
    """Return the leading right singular vectors, ``[L, d, rank]``, from the Gram matrix, which is small."""
    gram_Ldd = values_LSd.transpose(1, 2) @ values_LSd
    return torch.linalg.eigh(gram_Ldd).eigenvectors[..., -rank:].flip(-1)
