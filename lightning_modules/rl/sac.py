"""The losses of soft actor-critic (plain torch).

Legend: B batch, J critics.

Source: Haarnoja et al. 2018 (arXiv 1812.05905), sections 5 and 6.
"""

import torch
from torch import Tensor


def soft_value_target(
    reward_B: Tensor, terminated_B: Tensor, next_value_JB: Tensor, next_log_prob_B: Tensor, alpha: Tensor, discount: float
) -> Tensor:
    r"""Return the target of the critics, ``[B]``; only a terminal state cuts the bootstrap.

    .. math::
        y = r + \gamma (1 - \text{terminated}) \bigl( \min_j Q_j(s', a') - \alpha \log \pi(a' \mid s') \bigr)
    """
    soft_value_B = next_value_JB.amin(dim=0) - alpha * next_log_prob_B
    return torch.addcmul(reward_B, (~terminated_B).to(reward_B.dtype), soft_value_B, value=discount)


def critic_loss(value_JB: Tensor, target_B: Tensor) -> Tensor:
    """Squared error of each critic, mean over the batch, summed over critics."""
    return (value_JB - target_B).square().mean(dim=1).sum()


def actor_loss(value_JB: Tensor, log_prob_B: Tensor, alpha: Tensor) -> Tensor:
    r"""Return :math:`\mathbb{E}[\alpha \log \pi(a \mid s) - \min_j Q_j(s, a)]`."""
    return (alpha * log_prob_B - value_JB.amin(dim=0)).mean()


def temperature_loss(log_alpha: Tensor, log_prob_B: Tensor, target_entropy: float) -> Tensor:
    r"""Return :math:`-\log\alpha\, \mathbb{E}[\log \pi(a \mid s) + \bar H]`: alpha grows while the entropy is below its target."""
    return -log_alpha * (log_prob_B.detach() + target_entropy).mean()
