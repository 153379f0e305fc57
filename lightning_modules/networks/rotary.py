"""Rotary position embedding (plain torch).

Legend: B batch, H heads, T tokens, D dimension of a head.
"""

import torch
from torch import Tensor


def rotation_table(length: int, head_dim: int, base: float = 10_000.0, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    r"""Return cosine and sine of the angles :math:`\alpha_{tj} = t \, \text{base}^{-2j/D}`, float32 ``[T, D / 2]`` each.

    They are computed when asked for: as buffers they would lose their precision where a model is cast to bfloat16.

    Args:
        length: number T of tokens.
        head_dim: dimension D, even.
        base: wave length of the slowest pair, over 2π.
        device: where the tables are wanted.

    Raises:
        ValueError: if ``head_dim`` is odd.

    Source: RoFormer (arXiv 2104.09864), section 3.2.2.
    """
    if head_dim % 2:
        raise ValueError(f"rotary positions turn pairs of coordinates, head_dim={head_dim} is odd: change d_model or num_heads")
    frequencies = base ** -(torch.arange(0, head_dim, 2, device=device, dtype=torch.float32) / head_dim)
    angles_TD = torch.arange(length, device=device, dtype=torch.float32).outer(frequencies)
    return angles_TD.cos(), angles_TD.sin()


def rotate(x_BHTD: Tensor, cosine_TD: Tensor, sine_TD: Tensor) -> Tensor:
    r"""Turn the pair (j, j + D/2) of each head by its angle.

    .. math::
        x_j \mapsto x_j \cos\alpha_{tj} - x_{j + D/2} \sin\alpha_{tj}, \qquad
        x_{j + D/2} \mapsto x_{j + D/2} \cos\alpha_{tj} + x_j \sin\alpha_{tj}

    Then the product of a query at t and a key at s depends on t - s alone. The pairs are those of Llama.

    Args:
        x_BHTD: queries or keys, ``[..., T, D]``.
        cosine_TD: cosines, ``[T, D / 2]``.
        sine_TD: sines, ``[T, D / 2]``.

    Returns:
        The turned vectors in the type of ``x``; they are turned in that of the tables, if it is wider.
    """
    first, second = x_BHTD.chunk(2, dim=-1)
    turned = torch.cat([first * cosine_TD - second * sine_TD, second * cosine_TD + first * sine_TD], dim=-1)
    return turned.to(x_BHTD.dtype)
