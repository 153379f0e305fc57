"""Sums of the next n rewards of one environment inside a ring of transitions."""

from collections.abc import Mapping

import torch
from torch import Tensor


def n_step_returns(
    fields: Mapping[str, Tensor], index_B: Tensor, steps_left_B: Tensor, n_step: int, gamma: float, stride: int
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Follow each transition for up to ``n_step`` steps of its environment.

    .. math::
        R_i = \sum_{k=0}^{m-1} \gamma^k r_{i+k}, \qquad m = \min(n,\ \text{steps to the episode's end},\ \text{steps to the newest})

    The target is :math:`R_i + \gamma^m V(s')` with the ``next_obs`` and ``terminated`` of the last transition used. So an episode
    is never crossed, a truncated one is valued at its final observation, and the newest transitions look ahead as far as data go.

    Args:
        fields: rings ``reward``, ``terminated`` and ``truncated``, each ``[capacity]``; either flag ends an episode.
        index_B: rows to start from.
        steps_left_B: how many newer transitions of the same environment there are.
        n_step: largest number of rewards n.
        gamma: discount.
        stride: distance of one environment's successive rows, the number of environments.

    Returns:
        Returns ``R`` float32, rows of the last transitions used, and discounts :math:`\gamma^m` float32.
    """
    step_n = torch.arange(n_step)
    rows_Bn = (index_B[:, None] + step_n.minimum(steps_left_B[:, None]) * stride) % len(fields["reward"])
    ended_Bn = fields["terminated"][rows_Bn] | fields["truncated"][rows_Bn]
    used_Bn = (step_n <= steps_left_B[:, None]) & (ended_Bn.cumsum(1) - ended_Bn.long() == 0)
    discount_n = gamma ** torch.arange(n_step + 1, dtype=torch.float64)
    return_B = (fields["reward"][rows_Bn] * discount_n[:-1] * used_Bn).sum(1)
    m_B = used_Bn.sum(1)
    last_B = rows_Bn.gather(1, m_B[:, None] - 1)[:, 0]
    return return_B.float(), last_B, discount_n[m_B].float()
