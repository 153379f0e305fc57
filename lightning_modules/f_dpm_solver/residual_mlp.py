"""A small network without convolutions for small images and points, modulated by the noise level (plain torch).

Legend: B samples, n numbers of a sample, h hidden units, f Fourier features.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import silu


class RandomFourierFeatures(nn.Module):
    r"""Return :math:`\cos(2 \pi \omega_j s), \sin(2 \pi \omega_j s)` with fixed :math:`\omega_j \sim \mathcal N(0, 1)`, ``[B, f]``.

    Args:
        features: f, even.

    Source: Tancik et al. 2020 (arXiv 2006.10739).
    """

    frequencies: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.randn(features // 2))

    def forward(self, place_B: Tensor) -> Tensor:
        angles = 2 * math.pi * place_B.float().outer(self.frequencies)
        return torch.cat([angles.cos(), angles.sin()], dim=-1)


class ModulatedBlock(nn.Module):
    """``h + W2 silu(W1 ((1 + scale) * norm(h) + shift))``, scale and shift linear in the condition; begins as the identity."""

    def __init__(self, width: int, condition: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.modulation = nn.Linear(condition, 2 * width)
        self.inner, self.outer = nn.Linear(width, width), nn.Linear(width, width)
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    def forward(self, h_Bh: Tensor, condition_Bf: Tensor) -> Tensor:
        scale_Bh, shift_Bh = self.modulation(condition_Bf).chunk(2, dim=-1)
        return h_Bh + self.outer(silu(self.inner((1 + scale_Bh) * self.norm(h_Bh) + shift_Bh)))


class ResidualMLP(nn.Module):
    """A linear layer, modulated residual blocks and a linear head that begins as 0.

    Images need ``image_size`` and ``channels``, points ``dimension``; None takes the data's own.

    Args:
        width: hidden units h.
        blocks: residual blocks.
        fourier_features: features f of the noise level, even.
        image_size: height and width of images.
        channels: their channels.
        dimension: numbers of a point.

    Raises:
        ValueError: if the size of a sample is unknown, or a number does not fit.
    """

    smoke = {"width": 16, "blocks": 1}

    def __init__(
        self,
        width: int = 192,
        blocks: int = 3,
        fourier_features: int = 32,
        image_size: int | None = None,
        channels: int | None = None,
        dimension: int | None = None,
    ) -> None:
        super().__init__()
        if (dimension is None) == (image_size is None or channels is None):
            raise ValueError("ResidualMLP needs either image_size and channels or dimension when its data do not tell them")
        if width < 1 or blocks < 1 or fourier_features < 2 or fourier_features % 2:
            raise ValueError(f"{width=} and {blocks=} must be positive, {fourier_features=} even and positive")
        self.shape = (dimension,) if image_size is None or channels is None else (channels, image_size, image_size)
        numbers = math.prod(self.shape)  # type: ignore[arg-type]
        self.fourier = RandomFourierFeatures(fourier_features)
        self.stem = nn.Linear(numbers, width)
        self.blocks = nn.ModuleList(ModulatedBlock(width, fourier_features) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, numbers)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, x: Tensor, level_B: Tensor) -> Tensor:
        """Return what the network predicts, of the shape of x.

        Args:
            x: noisy samples of about unit deviation, ``[B, C, H, W]`` or ``[B, d]``.
            level_B: a quarter of the logarithm of their noise level, ``[B]``.
        """
        condition_Bf, h_Bh = self.fourier(level_B).to(x.dtype), self.stem(x.flatten(1))
        for block in self.blocks:
            h_Bh = block(h_Bh, condition_Bf)
        return self.head(self.norm(h_Bh)).view_as(x)
