"""Decoder-only transformer whose feed-forward layers are plugged in (plain torch).

Legend: B batch, T tokens, d model, V vocabulary, L layers.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lightning_modules.networks.attention import CausalSelfAttention, within_documents
from lightning_modules.networks.rotary import rotation_table


class DecoderBlock(nn.Module):
    """Pre-norm block: ``x + attention(norm(x))``, then ``x + feed_forward(norm(x), ...)``.

    Args:
        d_model: width d.
        num_heads: heads of the attention.
        feed_forward: maps ``[B, T, d]``, and further arguments if it has any, to the same shape, or to a pair of that and whatever
            else it has to tell.
        num_kv_heads: heads of keys and values; None: as many as heads.
        norm_eps: added to the mean square in RMSNorm.
    """

    def __init__(
        self, d_model: int, num_heads: int, feed_forward: nn.Module, num_kv_heads: int | None = None, norm_eps: float = 1e-5
    ) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(d_model, eps=norm_eps)
        self.attention = CausalSelfAttention(d_model, num_heads, num_kv_heads)
        self.feed_forward_norm = nn.RMSNorm(d_model, eps=norm_eps)
        self.feed_forward = feed_forward

    def forward(
        self, x_BTd: Tensor, rotation: tuple[Tensor, Tensor], mask_B1TT: Tensor | None = None, arguments: Sequence[Any] = ()
    ) -> tuple[Tensor, Any]:
        """Return the tokens, ``[B, T, d]``, and what the feed-forward layer told beside, or None.

        Args:
            x_BTd: tokens, ``[B, T, d]``.
            rotation: cosines and sines of the positions.
            mask_B1TT: who attends to whom; None: each token to all before it.
            arguments: further arguments of the feed-forward layer.
        """
        x_BTd = x_BTd + self.attention(self.attention_norm(x_BTd), rotation, mask_B1TT)
        result = self.feed_forward(self.feed_forward_norm(x_BTd), *arguments)
        y_BTd, told = result if isinstance(result, tuple) else (result, None)
        return x_BTd + y_BTd, told


class Decoder(nn.Module):
    r"""Embedding, L blocks, RMSNorm and an untied linear head.

    All matrices begin as :math:`\mathcal N(0, \sigma^2)`; those whose product is added to the residual stream, which a layer
    names in ``residual_weights()``, as :math:`\mathcal N(0, \sigma^2 / 2L)`. Vectors and scalars stay as their layers made them.

    Args:
        vocab_size: tokens V.
        d_model: width d.
        num_layers: blocks L.
        num_heads: heads of each attention.
        feed_forward: makes the feed-forward layer of the block of a number, 0 to L - 1.
        num_kv_heads: heads of keys and values; None: as many as heads.
        rope_base: base of the rotary positions.
        norm_eps: added to the mean square in RMSNorm.
        init_std: σ.
        checkpointing: compute the blocks anew in the backward pass, in training, to save memory.

    Raises:
        ValueError: if a size is not positive, or sizes do not fit together.
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        num_layers: int,
        num_heads: int,
        feed_forward: Callable[[int], nn.Module],
        num_kv_heads: int | None = None,
        rope_base: float = 10_000.0,
        norm_eps: float = 1e-5,
        init_std: float = 0.02,
        checkpointing: bool = False,
    ) -> None:
        super().__init__()
        for name, size in {"vocab_size": vocab_size, "d_model": d_model, "num_layers": num_layers}.items():
            if size < 1:
                raise ValueError(f"{name}={size} must be positive")
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.blocks = nn.ModuleList(
            DecoderBlock(d_model, num_heads, feed_forward(layer), num_kv_heads, norm_eps) for layer in range(num_layers)
        )
        self.norm = nn.RMSNorm(d_model, eps=norm_eps)
        self.head = nn.Linear(d_model, vocab_size, bias=False)
        self.head_dim, self.rope_base, self.checkpointing = d_model // num_heads, rope_base, checkpointing
        rotation_table(0, self.head_dim)
        self._initialize(init_std)

    def forward(
        self, tokens_BT: Tensor, arguments: Sequence[Sequence[Any]] | None = None, documents_BT: Tensor | None = None
    ) -> tuple[Tensor, list[Any]]:
        """Return the logits of each next token, ``[B, T, V]``, and what each feed-forward layer told beside.

        Args:
            tokens_BT: ids, int64 ``[B, T]``.
            arguments: further arguments of each feed-forward layer.
            documents_BT: number of each token's document, ``[B, T]``; tokens attend within their own. None: all is one.

        Raises:
            ValueError: if there are not as many ``arguments`` as blocks.
        """
        x_BTd, told = self.features(tokens_BT, arguments, documents_BT)
        return self.head(x_BTd), told

    def features(
        self, tokens_BT: Tensor, arguments: Sequence[Sequence[Any]] | None = None, documents_BT: Tensor | None = None
    ) -> tuple[Tensor, list[Any]]:
        """Do as :meth:`forward` does, but stop before the head: ``[B, T, d]``."""
        turns = rotation_table(tokens_BT.shape[1], self.head_dim, self.rope_base, tokens_BT.device)
        mask_B1TT = None if documents_BT is None else within_documents(documents_BT)
        arguments = [()] * len(self.blocks) if arguments is None else arguments
        if len(arguments) != len(self.blocks):
            raise ValueError(
                f"arguments for {len(arguments)} feed-forward layers, the decoder has {len(self.blocks)}: give each its own"
            )
        x_BTd, told = self.embedding(tokens_BT), []
        for block, own in zip(self.blocks, arguments, strict=True):
            if self.checkpointing and self.training and torch.is_grad_enabled():
                x_BTd, beside = checkpoint(block, x_BTd, turns, mask_B1TT, own, use_reentrant=False)
            else:
                x_BTd, beside = block(x_BTd, turns, mask_B1TT, own)
            told.append(beside)
        return self.norm(x_BTd), told

    @torch.no_grad()
    def _initialize(self, std: float) -> None:
        residual = {
            id(weight)
            for module in self.modules()
            if callable(offered := getattr(module, "residual_weights", None))
            for weight in offered()
        }
        small = std / (2 * len(self.blocks)) ** 0.5
        for parameter in self.parameters():
            if parameter.dim() >= 2:
                parameter.normal_(0.0, small if id(parameter) in residual else std)
