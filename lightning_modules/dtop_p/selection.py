"""Which experts a token uses, and with which weight.

Legend: S tokens, N experts, K largest number of experts a token may use.
"""

import torch
from torch import Tensor
from torch.nn import functional


def top_p_mask(probs_SN: Tensor, p: Tensor | float, k_max: int | None = None) -> Tensor:
    r"""Choose the fewest experts that hold the mass p.

    The expert of rank j is chosen iff :math:`\sum_{i<j} P_{(i)} < p`, where :math:`P_{(1)} \ge P_{(2)} \ge \dots`. One expert is
    always chosen, and all are for p ≥ 1.

    Args:
        probs_SN: probabilities, each row of which sums to 1.
        p: the mass, a scalar.
        k_max: choose no more than so many; None: no limit.

    Returns:
        Chosen experts, ``[S, N]`` bool.

    Source: Huang et al. 2024 (arXiv 2403.07652). Their code takes one expert more where the mass is exactly p.
    """
    N = probs_SN.shape[-1]
    sorted_SN, order_SN = probs_SN.detach().sort(dim=-1, descending=True, stable=True)
    before_SN = functional.pad(sorted_SN.cumsum(dim=-1)[..., :-1], (1, 0))
    chosen_S1 = ((before_SN < p) | (torch.as_tensor(p) >= 1)).sum(dim=-1, keepdim=True).clamp(1, k_max)
    keep_SN = torch.arange(N, device=probs_SN.device) < chosen_S1
    return torch.zeros_like(keep_SN).scatter(-1, order_SN, keep_SN)


def top_k_mask(probs_SN: Tensor, k: int) -> Tensor:
    """Choose the k most probable experts of each token, ``[S, N]`` bool."""
    chosen_SK = probs_SN.detach().topk(k, dim=-1).indices
    return torch.zeros_like(probs_SN, dtype=torch.bool).scatter(-1, chosen_SK, True)


def gate_weights(probs_SN: Tensor, mask_SN: Tensor, renormalize: bool = True) -> Tensor:
    r"""Return the weights of the chosen experts.

    .. math::
        g_i = P_i / \sum_{j \in S} P_j \quad (i \in S), \qquad g_i = 0 \quad (i \notin S)

    Args:
        probs_SN: P.
        mask_SN: S; the gates of a token without experts are 0.
        renormalize: divide by the sum; without, the chosen experts keep P.
    """
    kept_SN = probs_SN.masked_fill(~mask_SN, 0.0)
    if not renormalize:
        return kept_SN
    smallest = 0.5 / probs_SN.shape[-1]  # the most probable expert has at least 1 / N
    return kept_SN / kept_SN.sum(dim=-1, keepdim=True).clamp_min(smallest)
