"""Auxiliary losses of a router.

A mean over tokens leaves out those that are not ``valid``, and is 0 where none is.

Legend: S tokens, N experts.
"""

import torch
from torch import Tensor, distributed


def mean_over_valid(values_S: Tensor, valid_S: Tensor | None = None) -> Tensor:
    """Return the mean over the valid tokens (first axis)."""
    if valid_S is None:
        return values_S.sum(dim=0) / max(values_S.shape[0], 1)
    weight_S = valid_S.to(values_S.dtype).reshape(-1, *[1] * (values_S.ndim - 1))
    return torch.where(weight_S > 0, values_S, 0.0).sum(dim=0) / weight_S.sum().clamp_min(1.0)


def assignment_share(mask_SN: Tensor, sync: bool = False) -> Tensor:
    r"""Return :math:`f_i = \sum_t 1[i \in S_t] / \sum_t |S_t|`, the share of all assignments that go to each expert, ``[N]``.

    Args:
        mask_SN: chosen experts; nothing is chosen for tokens that are not valid.
        sync: count the tokens of all ranks.
    """
    assigned_N = mask_SN.sum(dim=0).float()
    if sync and distributed.is_available() and distributed.is_initialized():
        distributed.all_reduce(assigned_N)
    return assigned_N / assigned_N.sum().clamp_min(1.0)


def load_balance_loss(probs_SN: Tensor, share_N: Tensor, valid_S: Tensor | None = None) -> Tensor:
    r"""Return :math:`N \sum_i f_i \bar P_i`: 1 when balanced, N when one expert gets all.

    Args:
        probs_SN: P; its mean over tokens is :math:`\bar P`.
        share_N: f, see :func:`assignment_share`; it carries no gradient.
        valid_S: tokens to count.

    Source: Fedus et al. 2021 (arXiv 2101.03961); f sums to 1 whatever the number of experts a token uses.
    """
    return probs_SN.shape[-1] * (share_N * mean_over_valid(probs_SN, valid_S)).sum()


def entropy_loss(probs_SN: Tensor, valid_S: Tensor | None = None) -> Tensor:
    r"""Return :math:`-\operatorname{mean}_t \sum_i P_i \log(P_i + 10^{-9})`, which sharpens the routing.

    Source: Huang et al. 2024 (arXiv 2403.07652), the dynamic loss.
    """
    return -mean_over_valid((probs_SN * (probs_SN + 1e-9).log()).sum(dim=-1), valid_S)


def router_z_loss(logits_SN: Tensor, valid_S: Tensor | None = None) -> Tensor:
    r"""Return :math:`\operatorname{mean}_t (\log \sum_i e^{z_i})^2` of the raw logits.

    Source: Zoph et al. 2022 (arXiv 2202.08906).
    """
    return mean_over_valid(logits_SN.logsumexp(dim=-1).square(), valid_S)
