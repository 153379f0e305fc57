"""Draw tokens from unnormalised weights by their cumulative sum (plain torch).

Legend: B samples, D tokens, V ids, K draws of each.
"""

import torch
from torch import Tensor


def rates_away(weight_BDV: Tensor, x_BD: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return the cumulative rates :math:`\sum_{z \le v} q^i(z)` of leaving a state, ``[B, D, V]``, and their total Λ, ``[B, D]``.

    .. math::
        q^i(z) = w^i(z) \, 1[z \ne x^i], \qquad \Lambda^i = \sum_z q^i(z)

    Args:
        weight_BDV: posterior, or any rates, of each value.
        x_BD: the state; staying is no jump.
    """
    cumulative_BDV = weight_BDV.scatter(-1, x_BD.unsqueeze(-1), 0).cumsum(dim=-1)
    return cumulative_BDV, cumulative_BDV[..., -1]


def draw(cumulative_BDV: Tensor, uniform: Tensor) -> Tensor:
    """Return values drawn with the increments of the cumulative weights; an id of weight 0 is never drawn.

    Args:
        cumulative_BDV: cumulative weights; where all are 0 the answer is the last id.
        uniform: numbers from 0 to 1, ``[B, D]`` or ``[B, D, K]``.

    Returns:
        int64, of the shape of ``uniform``.
    """
    single = uniform.ndim == cumulative_BDV.ndim - 1
    uniform_BDK = uniform.unsqueeze(-1) if single else uniform
    total_BD1 = cumulative_BDV[..., -1:]
    below_total = torch.nextafter(total_BD1, torch.zeros_like(total_BD1))
    threshold = torch.minimum((uniform_BDK * total_BD1).to(cumulative_BDV.dtype), below_total).contiguous()
    value_BDK = torch.searchsorted(cumulative_BDV, threshold, right=True).clamp_max(cumulative_BDV.shape[-1] - 1)
    return value_BDK.squeeze(-1) if single else value_BDK


def jump(x_BD: Tensor, weight_BDV: Tensor, exposure: float | Tensor, clock_BD: Tensor, uniform_BD: Tensor) -> Tensor:
    r"""Let every token jump with probability :math:`1 - e^{-\tau \Lambda^i}`, with targets in proportion to the rates.

    Args:
        x_BD: state.
        weight_BDV: rates; that of staying is left out.
        exposure: τ, for how long the rates act; a number or ``[B, 1]``.
        clock_BD: standard exponential numbers; a token jumps if its clock rings, :math:`E^i < \tau \Lambda^i`.
        uniform_BD: numbers from 0 to 1 that choose the targets.
    """
    cumulative_BDV, total_BD = rates_away(weight_BDV, x_BD)
    return torch.where(clock_BD < exposure * total_BD.double(), draw(cumulative_BDV, uniform_BD), x_BD)


def jump_to_data(x_BD: Tensor, p_BDV: Tensor, exposure: float, clock_BD: Tensor, uniform_BD: Tensor) -> Tensor:
    r"""Draw the data :math:`x_1^i \sim p^i`, and let every token that differs go there with probability :math:`1 - e^{-\tau}`."""
    return torch.where(clock_BD < exposure, draw(p_BDV.cumsum(dim=-1), uniform_BD), x_BD)
