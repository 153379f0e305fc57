"""Values as distributions over fixed bins (plain torch).

Legend: J critics, B batch, K bins.
"""

import torch
from torch import Tensor
from torch.nn import functional


def expected_value(logits_JBK: Tensor, bins_K: Tensor) -> Tensor:
    """Return the means of the distributions, ``[J, B]``."""
    return logits_JBK.softmax(dim=-1) @ bins_K


def pessimistic(logits_JBK: Tensor, bins_K: Tensor) -> Tensor:
    """Return for each transition the distribution of the critic whose mean is the smallest, probabilities ``[B, K]``."""
    probabilities_JBK = logits_JBK.softmax(dim=-1)
    smallest_B = (probabilities_JBK @ bins_K).argmin(dim=0)
    return probabilities_JBK.take_along_dim(smallest_B[None, :, None], dim=0)[0]


def two_hot(values_BK: Tensor, probabilities_BK: Tensor, bins_K: Tensor) -> Tensor:
    """Project distributions on any values to the bins.

    A value beyond the bins counts as the outermost one; the probability of any other is shared by its two neighbours so that the
    mean stays as it was.

    Args:
        values_BK: where the probability lies.
        probabilities_BK: how much of it.
        bins_K: evenly spaced and rising.

    Returns:
        Probabilities of the bins, ``[B, K]``.
    """
    last = len(bins_K) - 1
    place_BK = ((values_BK - bins_K[0]) * (last / (bins_K[-1] - bins_K[0]))).clamp(0, last)
    below_BK = place_BK.floor().clamp_max(last - 1)
    above_BK = probabilities_BK * (place_BK - below_BK)
    index_BK = below_BK.long()
    projected_BK = torch.zeros_like(probabilities_BK)
    projected_BK.scatter_add_(-1, index_BK, probabilities_BK - above_BK)
    return projected_BK.scatter_add_(-1, index_BK + 1, above_BK)


def categorical_target(
    probabilities_BK: Tensor, reward_B: Tensor, terminated_B: Tensor, entropy_cost_B: Tensor, discount: float, bins_K: Tensor
) -> Tensor:
    r"""Return the distribution of the soft Bellman backup, ``[B, K]``.

    .. math::
        v \mapsto r + \gamma (1 - \text{terminated}) (v - \alpha \log \pi(a' \mid s'))

    for every bin v, projected to the bins. An episode that was cut by the clock is not terminated.

    Args:
        probabilities_BK: distribution of the next action's value.
        reward_B: r.
        terminated_B: whether the next state has no future.
        entropy_cost_B: α log π of the next action.
        discount: γ.
        bins_K: values of the bins.
    """
    goes_on_B1 = discount * (~terminated_B).to(reward_B).unsqueeze(-1)
    values_BK = reward_B.unsqueeze(-1) + goes_on_B1 * (bins_K - entropy_cost_B.unsqueeze(-1))
    return two_hot(values_BK, probabilities_BK, bins_K)


def cross_entropy(logits_JBK: Tensor, target_BK: Tensor) -> Tensor:
    """Return the mean cross-entropy over the batch, summed over the critics."""
    return -(target_BK * functional.log_softmax(logits_JBK, dim=-1)).sum(dim=-1).mean(dim=-1).sum()
