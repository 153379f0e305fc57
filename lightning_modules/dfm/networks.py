"""Networks that predict all clean tokens of a sequence from a noisy one (plain torch).

Each maps tokens ``[B, D]`` below V and times ``[B]`` to logits ``[B, D, S]``. Legend: B batch, D tokens, V ids that are read (with
the mask, if there is one), S ids that are predicted, d width.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot, silu
from torch.utils.checkpoint import checkpoint

from lightning_modules.networks.diffusion_transformer import (
    NORM_EPS,
    TIME_SCALE,
    ModulatedBlock,
    Modulation,
    modulate,
    sinusoids,
)
from lightning_modules.networks.gelu import GELUFeedForward

FREQUENCIES = 256
LATEST = 1e-6
"""The logarithm of what is left of the time is that of at least this."""


class ResidualBlock(nn.Module):
    r"""Return :math:`x + W_2 \operatorname{silu}(W_1 \operatorname{silu}(\operatorname{norm}(x)))`, ``[..., d]``."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(silu(self.up(silu(self.norm(x)))))


class TokenMLP(nn.Module):
    r"""A perceptron on all tokens of a sequence at once, and on :math:`(t, \log(1 - t))` if it is to know the time.

    Args:
        vocab_in: V.
        vocab_out: S.
        length: D.
        width: units of a hidden layer.
        depth: hidden layers, or residual blocks of two layers each after the first hidden layer.
        embed: numbers that stand for a token; None: V of them, one for each token (one-hot).
        residual: have residual blocks.
        time: whether the network knows the time; with masks alone it need not.

    Raises:
        ValueError: if a size is not positive.
    """

    def __init__(
        self,
        vocab_in: int,
        vocab_out: int,
        length: int,
        width: int = 128,
        depth: int = 3,
        embed: int | None = None,
        residual: bool = False,
        time: bool = True,
    ) -> None:
        super().__init__()
        check_sizes(vocab_in=vocab_in, vocab_out=vocab_out, length=length, width=width, depth=depth, embed=embed)
        self.vocab_in, self.vocab_out, self.length, self.time = vocab_in, vocab_out, length, time
        self.embedding = None if embed is None else nn.Embedding(vocab_in, embed)
        inputs = length * (vocab_in if embed is None else embed) + 2 * time
        layers: list[nn.Module] = [nn.Linear(inputs, width)]
        if residual:
            layers += [*(ResidualBlock(width) for _ in range(depth)), nn.LayerNorm(width)]
        else:
            layers += [layer for _ in range(depth - 1) for layer in (nn.SiLU(), nn.Linear(width, width))]
        self.body = nn.Sequential(*layers, nn.SiLU(), nn.Linear(width, length * vocab_out))

    def forward(self, x_BD: Tensor, t_B: Tensor) -> Tensor:
        """Return logits, ``[B, D, S]``."""
        dtype = next(self.parameters()).dtype
        tokens = one_hot(x_BD, self.vocab_in).to(dtype) if self.embedding is None else self.embedding(x_BD)
        parts = [tokens.flatten(1)]
        if self.time:
            parts.append(torch.stack([t_B, (1 - t_B).clamp_min(LATEST).log()], dim=-1).to(tokens.dtype))
        return self.body(torch.cat(parts, dim=-1)).unflatten(-1, (self.length, self.vocab_out))


class TokenTransformer(nn.Module):
    r"""Tokens with learned positions, blocks of attention in which each token attends to all, and a linear head.

    The blocks are modulated by the time (adaLN-Zero); if the network is not to know it, the modulation is a learned constant.
    Embeddings begin as :math:`\mathcal N(0, 0.02^2)`, modulations and head as 0, so the network begins with equal logits.

    Args:
        vocab_in: V.
        vocab_out: S.
        length: D.
        width: d.
        depth: blocks.
        num_heads: heads of each attention.
        time: whether the network knows the time; with masks alone it need not.
        checkpointing: compute the blocks anew in the backward pass, in training, to save memory.

    Raises:
        ValueError: if a size is not positive, or sizes do not fit together.

    Source: DiT (arXiv 2212.09748), section 3.2.
    """

    def __init__(
        self,
        vocab_in: int,
        vocab_out: int,
        length: int,
        width: int = 128,
        depth: int = 4,
        num_heads: int = 4,
        time: bool = True,
        checkpointing: bool = False,
    ) -> None:
        super().__init__()
        check_sizes(vocab_in=vocab_in, vocab_out=vocab_out, length=length, width=width, depth=depth)
        self.vocab_out, self.checkpointing = vocab_out, checkpointing
        self.embedding = nn.Embedding(vocab_in, width)
        self.positions = nn.Parameter(torch.empty(length, width))
        self.time = nn.Sequential(nn.Linear(FREQUENCIES, width), nn.SiLU(), nn.Linear(width, width)) if time else None
        self.blocks = nn.ModuleList(ModulatedBlock(width, num_heads, GELUFeedForward(width, 4 * width)) for _ in range(depth))
        self.norm = nn.LayerNorm(width, eps=NORM_EPS, elementwise_affine=False)
        self.modulation = Modulation(width, 2)
        self.head = nn.Linear(width, vocab_out)
        for table in (self.embedding.weight, self.positions):
            nn.init.normal_(table, std=0.02)
        for linear in (self.head, *(module.linear for module in self.modules() if isinstance(module, Modulation))):
            nn.init.zeros_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x_BD: Tensor, t_B: Tensor) -> Tensor:
        """Return logits, ``[B, D, S]``."""
        h_BDd = self.embedding(x_BD) + self.positions
        condition_Bd = h_BDd.new_zeros(len(x_BD), h_BDd.shape[-1])
        if self.time is not None:
            condition_Bd = self.time(sinusoids(TIME_SCALE * t_B, FREQUENCIES).to(h_BDd.dtype))
        for block in self.blocks:
            if self.checkpointing and self.training and torch.is_grad_enabled():
                h_BDd, _ = checkpoint(block, h_BDd, condition_Bd, use_reentrant=False)
            else:
                h_BDd, _ = block(h_BDd, condition_Bd)
        shift_B1d, scale_B1d = self.modulation(condition_Bd)
        return self.head(modulate(self.norm(h_BDd), shift_B1d, scale_B1d))


def check_sizes(**sizes: int | None) -> None:
    """Refuse sizes that are not positive; None is not set.

    Raises:
        ValueError: names the size.
    """
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise ValueError(f"{name}={size} must be positive")
