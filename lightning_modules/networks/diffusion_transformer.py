"""Transformer that predicts a field on images from the time of a diffusion and a class; feed-forward layers are plugged in.

Plain torch. Legend: B batch, C channels, H and W pixels, P side of a patch, T patches, d model, L layers.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import silu
from torch.utils.checkpoint import checkpoint

from lightning_modules.networks.attention import SelfAttention

NORM_EPS = 1e-6
MAX_PERIOD = 10_000.0
TIME_SCALE = 1_000.0


def patchify(image_BCHW: Tensor, patch: int) -> Tensor:
    """Cut images into square patches, row by row, ``[B, T, P * P * C]``; a patch lists pixels, each with its channels."""
    patches = image_BCHW.unflatten(-1, (-1, patch)).unflatten(-3, (-1, patch))  # [B, C, rows, P, columns, P]
    return patches.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)


def unpatchify(patches_BTp: Tensor, patch: int, channels: int) -> Tensor:
    """Put the patches of square images together: the inverse of :func:`patchify`, ``[B, C, H, W]``."""
    side = math.isqrt(patches_BTp.shape[1])
    pixels = patches_BTp.unflatten(1, (side, side)).unflatten(-1, (patch, patch, channels))
    return pixels.permute(0, 5, 1, 3, 2, 4).flatten(4).flatten(2, 3)


def sinusoids(place_n: Tensor, size: int) -> Tensor:
    r"""Return :math:`\cos(\omega_j s), \sin(\omega_j s)` of each place s, :math:`\omega_j = 10^{-4 j / (\text{size} / 2)}`.

    Args:
        place_n: places, ``[n]``.
        size: numbers of each place, even.

    Returns:
        float32 ``[n, size]``, first all cosines.

    Raises:
        ValueError: if ``size`` is odd.
    """
    if size % 2:
        raise ValueError(f"sinusoids come in pairs, size={size} is odd")
    frequencies = MAX_PERIOD ** -(torch.arange(size // 2, device=place_n.device, dtype=torch.float32) / (size // 2))
    angles = place_n.float().outer(frequencies)
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


def grid_positions(side: int, d_model: int) -> Tensor:
    """Return the positions of ``side * side`` patches, row by row: half of the d numbers tell the row, half the column.

    Raises:
        ValueError: if d is not a multiple of 4.
    """
    if d_model % 4:
        raise ValueError(f"positions on a grid need a d_model that is a multiple of 4, not {d_model}")
    line = sinusoids(torch.arange(side), d_model // 2)
    return torch.cat([line.repeat_interleave(side, dim=0), line.repeat(side, 1)], dim=-1)


class Condition(nn.Module):
    """Embed time and class and add both, ``[B, d]``.

    Args:
        d_model: width d.
        num_classes: classes; number ``num_classes`` means that none is given.
        frequencies: sinusoids of the time.
    """

    def __init__(self, d_model: int, num_classes: int, frequencies: int = 256) -> None:
        super().__init__()
        self.frequencies = frequencies
        self.time = nn.Sequential(nn.Linear(frequencies, d_model), nn.SiLU(), nn.Linear(d_model, d_model))
        self.label = nn.Embedding(num_classes + 1, d_model)

    def forward(self, t_B: Tensor, label_B: Tensor) -> Tensor:
        waves = sinusoids(TIME_SCALE * t_B, self.frequencies)
        return self.time(waves.to(self.label.weight.dtype)) + self.label(label_B)


class Modulation(nn.Module):
    """Make ``parts`` vectors of width d from the condition, ``[B, 1, d]`` each; all begin as 0."""

    def __init__(self, d_model: int, parts: int) -> None:
        super().__init__()
        self.parts = parts
        self.linear = nn.Linear(d_model, parts * d_model)

    def forward(self, condition_Bd: Tensor) -> tuple[Tensor, ...]:
        return self.linear(silu(condition_Bd)).unsqueeze(1).chunk(self.parts, dim=-1)


class ModulatedBlock(nn.Module):
    r"""Block whose norms are shifted and scaled, and whose branches are gated, by the condition (adaLN-Zero).

    .. math::
        x \leftarrow x + g_1 \odot \operatorname{attention}\bigl((1 + c_1) \odot \operatorname{norm}(x) + s_1\bigr), \qquad
        x \leftarrow x + g_2 \odot \operatorname{ffn}\bigl((1 + c_2) \odot \operatorname{norm}(x) + s_2\bigr)

    Shifts s, scales c and gates g begin as 0, so the block begins as the identity.

    Args:
        d_model: width d.
        num_heads: heads of the attention.
        feed_forward: maps ``[B, T, d]``, and further arguments if it has any, to the same shape, or to a pair of that and whatever
            else it has to tell.

    Source: DiT (arXiv 2212.09748), section 3.2.
    """

    def __init__(self, d_model: int, num_heads: int, feed_forward: nn.Module) -> None:
        super().__init__()
        self.modulation = Modulation(d_model, 6)
        self.attention_norm = nn.LayerNorm(d_model, eps=NORM_EPS, elementwise_affine=False)
        self.attention = SelfAttention(d_model, num_heads)
        self.feed_forward_norm = nn.LayerNorm(d_model, eps=NORM_EPS, elementwise_affine=False)
        self.feed_forward = feed_forward

    def forward(self, x_BTd: Tensor, condition_Bd: Tensor, arguments: Sequence[Any] = ()) -> tuple[Tensor, Any]:
        """Return the tokens, ``[B, T, d]``, and what the feed-forward layer told beside, or None."""
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(condition_Bd)
        x_BTd = x_BTd + gate1 * self.attention(modulate(self.attention_norm(x_BTd), shift1, scale1))
        result = self.feed_forward(modulate(self.feed_forward_norm(x_BTd), shift2, scale2), *arguments)
        y_BTd, told = result if isinstance(result, tuple) else (result, None)
        return x_BTd + gate2 * y_BTd, told


def modulate(x_BTd: Tensor, shift_B1d: Tensor, scale_B1d: Tensor) -> Tensor:
    """Return ``(1 + scale) * x + shift``."""
    return (1 + scale_B1d) * x_BTd + shift_B1d


class DiffusionTransformer(nn.Module):
    r"""Patches with fixed positions, L modulated blocks, and a modulated linear head that begins as 0.

    Matrices begin as :math:`\mathcal N(0, 2 / (\text{rows} + \text{columns}))`, also each of stacked ones, the embeddings of time
    and class as :math:`\mathcal N(0, 0.02^2)`, modulations and head as 0.

    Args:
        image_size: height and width of the images.
        channels: their channels C.
        num_classes: classes; number ``num_classes`` means that none is given.
        patch: side P of a patch, a divisor of ``image_size``.
        d_model: width d, a multiple of 4.
        num_layers: blocks L.
        num_heads: heads of each attention.
        feed_forward: makes the feed-forward layer of the block of a number, 0 to L - 1.
        checkpointing: compute the blocks anew in the backward pass, in training, to save memory.

    Raises:
        ValueError: if a size is not positive, or sizes do not fit together.

    Source: DiT (arXiv 2212.09748).
    """

    def __init__(
        self,
        image_size: int,
        channels: int,
        num_classes: int,
        patch: int,
        d_model: int,
        num_layers: int,
        num_heads: int,
        feed_forward: Callable[[int], nn.Module],
        checkpointing: bool = False,
    ) -> None:
        super().__init__()
        sizes = {"image_size": image_size, "channels": channels, "num_classes": num_classes, "patch": patch}
        for name, size in {**sizes, "d_model": d_model, "num_layers": num_layers}.items():
            if size < 1:
                raise ValueError(f"{name}={size} must be positive")
        if image_size % patch:
            raise ValueError(f"patch={patch} does not divide image_size={image_size}: use a divisor")
        self.image_size, self.channels, self.num_classes, self.patch = image_size, channels, num_classes, patch
        self.checkpointing = checkpointing
        self.embedding = nn.Linear(patch**2 * channels, d_model)
        self.condition = Condition(d_model, num_classes)
        self.blocks = nn.ModuleList(ModulatedBlock(d_model, num_heads, feed_forward(layer)) for layer in range(num_layers))
        self.norm = nn.LayerNorm(d_model, eps=NORM_EPS, elementwise_affine=False)
        self.modulation = Modulation(d_model, 2)
        self.head = nn.Linear(d_model, patch**2 * channels)
        self.register_buffer("positions", grid_positions(image_size // patch, d_model), persistent=False)
        self._initialize()

    positions: Tensor

    def forward(
        self, image_BCHW: Tensor, t_B: Tensor, label_B: Tensor, arguments: Sequence[Sequence[Any]] | None = None
    ) -> tuple[Tensor, list[Any]]:
        """Return the field, ``[B, C, H, W]``, and what each feed-forward layer told beside.

        Args:
            image_BCHW: images, ``[B, C, H, W]``.
            t_B: times from 0 to 1, ``[B]``.
            label_B: classes, or ``num_classes`` for none, int64 ``[B]``.
            arguments: further arguments of each feed-forward layer.

        Raises:
            ValueError: if the images have another shape, or there are not as many ``arguments`` as blocks.
        """
        expected = [self.channels, self.image_size, self.image_size]
        if list(image_BCHW.shape[1:]) != expected:
            raise ValueError(f"images of shape {list(image_BCHW.shape[1:])}, the network was built for {expected}")
        arguments = [()] * len(self.blocks) if arguments is None else arguments
        if len(arguments) != len(self.blocks):
            raise ValueError(
                f"arguments for {len(arguments)} feed-forward layers, the transformer has {len(self.blocks)}: give each its own"
            )
        condition_Bd, told = self.condition(t_B, label_B), []
        x_BTd = self.embedding(patchify(image_BCHW, self.patch)) + self.positions
        for block, own in zip(self.blocks, arguments, strict=True):
            if self.checkpointing and self.training and torch.is_grad_enabled():
                x_BTd, beside = checkpoint(block, x_BTd, condition_Bd, own, use_reentrant=False)
            else:
                x_BTd, beside = block(x_BTd, condition_Bd, own)
            told.append(beside)
        shift_B1d, scale_B1d = self.modulation(condition_Bd)
        patches_BTp = self.head(modulate(self.norm(x_BTd), shift_B1d, scale_B1d))
        return unpatchify(patches_BTp, self.patch, self.channels), told

    @torch.no_grad()
    def _initialize(self) -> None:
        for parameter in self.parameters():
            if parameter.dim() >= 2:
                parameter.normal_(0.0, (2 / sum(parameter.shape[-2:])) ** 0.5)
        for linear in (module for module in self.modules() if isinstance(module, nn.Linear) and module.bias is not None):
            nn.init.zeros_(linear.bias)
        for parameter in self.condition.parameters():
            if parameter.dim() >= 2:
                nn.init.normal_(parameter, std=0.02)
        modulations = [module.linear for module in self.modules() if isinstance(module, Modulation)]
        for linear in (self.head, *modulations):
            nn.init.zeros_(linear.weight)
