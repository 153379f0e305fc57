"""Losses, targets and priorities of TD7 (plain torch).

Legend: B batch, J critics, m action.

Source: Fujimoto et al. 2023, "For SALE" (arXiv 2306.02451); Fujimoto et al. 2020 (LAP, arXiv 2007.06049).
"""

import torch
from torch import Tensor


def smoothed_action(action_Bm: Tensor, noise: float, noise_clip: float) -> Tensor:
    """Add clipped Gaussian noise to actions, which stay in [-1, 1]."""
    noise_Bm = (noise * torch.randn_like(action_Bm)).clamp(-noise_clip, noise_clip)
    return (action_Bm + noise_Bm).clamp(-1.0, 1.0)


def clipped_value_target(
    reward_B: Tensor, terminated_B: Tensor, next_value_JB: Tensor, low: Tensor, high: Tensor, discount: float
) -> Tensor:
    r"""Return the target of the critics, ``[B]``; only a terminal state cuts the bootstrap.

    .. math::
        y = r + \gamma (1 - \text{terminated}) \operatorname{clip}(\min_j Q_j(s', a'), \text{low}, \text{high})
    """
    next_value_B = next_value_JB.amin(dim=0).clamp(low, high)
    return torch.addcmul(reward_B, (~terminated_B).to(reward_B.dtype), next_value_B, value=discount)


def lap_huber(error_JB: Tensor, min_priority: float = 1.0) -> Tensor:
    r"""Return the critics' loss under prioritised sampling, mean over the batch, summed over critics.

    .. math::
        \ell(\delta) = \begin{cases} \tfrac12 \delta^2 & \delta < p_\text{min} \\ p_\text{min}\, \delta & \text{else} \end{cases}

    Args:
        error_JB: absolute temporal-difference errors.
        min_priority: smallest priority.
    """
    return torch.where(error_JB < min_priority, 0.5 * error_JB.square(), min_priority * error_JB).mean(dim=1).sum()


def lap_priority(error_JB: Tensor, alpha: float = 0.4, min_priority: float = 1.0) -> Tensor:
    r"""Return :math:`\max(\max_j \delta_j, p_\text{min})^\alpha`, ``[B]``."""
    return error_JB.amax(dim=0).clamp_min(min_priority).pow(alpha)
