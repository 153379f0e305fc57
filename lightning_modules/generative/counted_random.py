"""Random numbers that belong to a sample: a pure function of its seed, on any device, in any batch (plain torch).

Legend: B samples, n numbers of each.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

GOLDEN = 0x9E3779B97F4A7C15 - 2**64  # as signed 64-bit numbers
FIRST = 0xBF58476D1CE4E5B9 - 2**64
SECOND = 0x94D049BB133111EB - 2**64


def uniform(seed_B: Tensor, stream: int, shape: Sequence[int] = ()) -> Tensor:
    r"""Return numbers strictly between 0 and 1, float64 ``[B, *shape]``.

    .. math::
        u_{bk} = 2^{-52} \bigl( \lfloor \operatorname{mix}(\operatorname{mix}(s_b + \gamma \cdot \text{stream}) + \gamma k)
            / 2^{12} \rfloor + \tfrac12 \bigr), \qquad k = 1, 2, \dots

    with the mixing function and the increment γ of SplitMix64. No generator is advanced.

    Args:
        seed_B: seed of each sample, int64 ``[B]``.
        stream: number of what is drawn; other streams are other numbers.
        shape: shape of what is drawn for each sample.

    Source: Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators".
    """
    count = torch.arange(1, math.prod(shape) + 1, device=seed_B.device)
    step = torch.full((), GOLDEN, device=seed_B.device)
    start_B1 = _mix(seed_B + step * stream).unsqueeze(-1)
    bits_Bn = _shifted(_mix(start_B1 + step * count), 12)
    return ((bits_Bn.double() + 0.5) * 2.0**-52).view(*seed_B.shape, *shape)


def normal(seed_B: Tensor, stream: int, shape: Sequence[int] = ()) -> Tensor:
    """Return standard normal numbers, float32 ``[B, *shape]``; see :func:`uniform`."""
    return torch.special.ndtri(uniform(seed_B, stream, shape)).float()


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shifted(x, 30)) * FIRST
    x = (x ^ _shifted(x, 27)) * SECOND
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, places: int) -> Tensor:
    """Shift right and fill with zeros, as for numbers without sign."""
    return (x >> places) & (2 ** (64 - places) - 1)
