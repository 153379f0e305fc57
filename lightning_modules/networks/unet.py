"""U-Net of images, modulated by the noise level (plain torch).

Legend: B images, C channels, H and W pixels, e numbers of the embedding of the noise level, h heads.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, scaled_dot_product_attention, silu
from torch.utils.checkpoint import checkpoint

from lightning_modules.networks.diffusion_transformer import sinusoids

LEVEL_SCALE = 1_000.0
GROUP = 4
MOST_GROUPS = 32


def group_norm(channels: int) -> nn.GroupNorm:
    """Return a norm over groups of at least four channels, at most 32 of them."""
    return nn.GroupNorm(max(count for count in range(1, MOST_GROUPS + 1) if channels % (count * GROUP) == 0), channels, eps=1e-6)


class ImageAttention(nn.Module):
    """Self-attention between the pixels of an image, added to it; begins as the identity."""

    def __init__(self, channels: int, head_channels: int) -> None:
        super().__init__()
        self.heads = max(1, channels // head_channels)
        self.norm = group_norm(channels)
        self.qkv, self.out = nn.Conv2d(channels, 3 * channels, 1), zero(nn.Conv2d(channels, channels, 1))

    def forward(self, x_BCHW: Tensor) -> Tensor:
        qkv = self.qkv(self.norm(x_BCHW)).flatten(2).unflatten(1, (3, self.heads, -1)).transpose(-1, -2)
        mixed_BhTc = scaled_dot_product_attention(*qkv.unbind(dim=1))
        return x_BCHW + self.out(mixed_BhTc.transpose(-1, -2).flatten(1, 2).view_as(x_BCHW))


class ResidualBlock(nn.Module):
    r"""Two convolutions, the second modulated by the noise level, added to the input; then attention if asked for.

    .. math::
        h = W_1 \operatorname{silu}(\operatorname{norm}(x)), \qquad
        y = \bigl( P x + W_2 \operatorname{silu}((1 + c) \odot \operatorname{norm}(h) + s) \bigr) / \sqrt 2

    P is the identity or, where the number of channels changes, a convolution of one pixel.

    Source: EDM (arXiv 2206.00364), appendix F.2, after Song et al. 2021 (arXiv 2011.13456) and Dhariwal and Nichol 2021.
    """

    def __init__(self, inputs: int, channels: int, embedding: int, dropout: float, attention: bool, head_channels: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = group_norm(inputs), nn.Conv2d(inputs, channels, 3, padding=1)
        self.modulation = nn.Linear(embedding, 2 * channels)
        self.norm2, self.conv2 = group_norm(channels), zero(nn.Conv2d(channels, channels, 3, padding=1))
        self.dropout = nn.Dropout(dropout)
        self.skip = nn.Identity() if inputs == channels else nn.Conv2d(inputs, channels, 1)
        self.attention = ImageAttention(channels, head_channels) if attention else nn.Identity()

    def forward(self, x_BCHW: Tensor, embedding_Be: Tensor) -> Tensor:
        scale, shift = self.modulation(embedding_Be)[:, :, None, None].chunk(2, dim=1)
        y_BCHW = self.norm2(self.conv1(silu(self.norm1(x_BCHW))))
        y_BCHW = self.conv2(self.dropout(silu((1 + scale) * y_BCHW + shift)))
        return self.attention((self.skip(x_BCHW) + y_BCHW) * 0.5**0.5)


class UNet(nn.Module):
    r"""Residual blocks at falling and then rising resolution, with the outputs of the first half handed to the second.

    Level l has :math:`\text{width} \cdot \text{multipliers}_l` channels and half the pixels of level l - 1 in each direction. Each
    level has ``blocks`` residual blocks on the way down and one more on the way up; two with attention lie at the bottom. The head
    begins as 0. Pixels may be folded into channels in patches first, which makes everything cheaper.

    Args:
        width: channels of the first level, a multiple of 4.
        multipliers: of the levels, first to last.
        blocks: residual blocks of a level.
        attention: levels whose blocks have attention, numbers from 0.
        head_channels: channels of a head of the attention, about.
        dropout: share of the units that are dropped in a block.
        patch: side of the patches.
        checkpointing: compute blocks anew in the backward pass to save memory.
        image_size: height and width of the images; None takes the data's own.
        channels: their channels; None takes the data's own.

    Raises:
        ValueError: if sizes are unknown or do not fit together.

    Source: EDM (arXiv 2206.00364), appendix F.2, the network called DDPM++; patches are ours.
    """

    smoke = {"width": 8, "blocks": 1}

    def __init__(
        self,
        width: int = 32,
        multipliers: Sequence[int] = (1, 2),
        blocks: int = 2,
        attention: Sequence[int] = (),
        head_channels: int = 64,
        dropout: float = 0.0,
        patch: int = 1,
        checkpointing: bool = False,
        image_size: int | None = None,
        channels: int | None = None,
    ) -> None:
        super().__init__()
        if image_size is None or channels is None:
            raise ValueError("UNet needs image_size and channels when its data do not tell them")
        if width < GROUP or width % GROUP or blocks < 1 or not multipliers or min(multipliers) < 1:
            raise ValueError(f"{width=} must be a multiple of {GROUP}, {blocks=} and {multipliers=} positive")
        if image_size % (patch * 2 ** (len(multipliers) - 1)):
            raise ValueError(
                f"{image_size} pixels cannot be halved for {len(multipliers)} levels after patches of {patch}: "
                "use fewer multipliers or another patch, or pad the images (pad_to)"
            )
        if any(level not in range(len(multipliers)) for level in attention):
            raise ValueError(f"attention={list(attention)} must hold levels from 0 to {len(multipliers) - 1}")
        self.shape, self.patch, self.width, self.checkpointing = (channels, image_size, image_size), patch, width, checkpointing
        embedding, folded = 4 * width, channels * patch**2
        self.embedding = nn.Sequential(nn.Linear(width, embedding), nn.SiLU(), nn.Linear(embedding, embedding))
        self.stem = nn.Conv2d(folded, width, 3, padding=1)

        def block(inputs: int, level: int, attend: bool = False) -> ResidualBlock:
            wanted = attend or level in attention
            return ResidualBlock(inputs, width * multipliers[level], embedding, dropout, wanted, head_channels)

        last, now, kept = len(multipliers) - 1, width, [width]
        self.down = nn.ModuleList()
        for level, multiplier in enumerate(multipliers):
            inputs = [now, *[width * multiplier] * (blocks - 1)]
            self.down.append(nn.ModuleList(block(number, level) for number in inputs))
            now = width * multiplier
            kept += [now] * (blocks + (level < last))
        self.shrink = nn.ModuleList(nn.Conv2d(width * m, width * m, 3, stride=2, padding=1) for m in multipliers[:-1])
        self.middle = nn.ModuleList([block(now, last, attend=True), block(now, last)])
        self.up = nn.ModuleList()
        for level in reversed(range(len(multipliers))):
            stage = nn.ModuleList()
            for _ in range(blocks + 1):
                stage.append(block(now + kept.pop(), level))
                now = width * multipliers[level]
            self.up.append(stage)
        self.grow = nn.ModuleList(nn.Conv2d(width * m, width * m, 3, padding=1) for m in reversed(multipliers[1:]))
        self.norm, self.head = group_norm(now), zero(nn.Conv2d(now, folded, 3, padding=1))

    def forward(self, x_BCHW: Tensor, level_B: Tensor) -> Tensor:
        """Return what the network predicts, ``[B, C, H, W]``.

        Args:
            x_BCHW: noisy images of about unit deviation.
            level_B: a quarter of the logarithm of their noise level, ``[B]``.
        """
        waves_Bw = sinusoids(LEVEL_SCALE * level_B, self.width).to(x_BCHW.dtype)
        embedding_Be = silu(self.embedding(waves_Bw))
        x_BCHW = self.stem(nn.functional.pixel_unshuffle(x_BCHW, self.patch))
        kept = [x_BCHW]
        for level, stage in enumerate(self.down):
            for block in stage:  # type: ignore[attr-defined]
                x_BCHW = self._run(block, x_BCHW, embedding_Be)
                kept.append(x_BCHW)
            if level < len(self.shrink):
                x_BCHW = self.shrink[level](x_BCHW)
                kept.append(x_BCHW)
        for block in self.middle:
            x_BCHW = self._run(block, x_BCHW, embedding_Be)
        for place, stage in enumerate(self.up):
            for block in stage:  # type: ignore[attr-defined]
                x_BCHW = self._run(block, torch.cat([x_BCHW, kept.pop()], dim=1), embedding_Be)
            if place < len(self.grow):
                x_BCHW = self.grow[place](interpolate(x_BCHW, scale_factor=2.0))
        return nn.functional.pixel_shuffle(self.head(silu(self.norm(x_BCHW))), self.patch)

    def _run(self, block: nn.Module, x_BCHW: Tensor, embedding_Be: Tensor) -> Tensor:
        if self.checkpointing and self.training and torch.is_grad_enabled():
            return checkpoint(block, x_BCHW, embedding_Be, use_reentrant=False)
        return block(x_BCHW, embedding_Be)


def zero(convolution: nn.Conv2d) -> nn.Conv2d:
    """Return the convolution, whose output is now 0."""
    nn.init.zeros_(convolution.weight)
    if convolution.bias is not None:
        nn.init.zeros_(convolution.bias)
    return convolution
