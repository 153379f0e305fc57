"""Self-attention, causal with rotary positions or neither (plain torch).

Legend: B batch, T tokens, d model, H heads, K heads of keys and values, D dimension of a head.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from lightning_modules.networks.rotary import rotate


class SelfAttention(nn.Module):
    r"""Each token attends to all.

    .. math::
        y_t = W_o \, \big\Vert_h \sum_s
            \operatorname{softmax}_s\!\big(\langle R_t q_{ht}, R_s k_{hs} \rangle / \sqrt{D}\big) \, v_{hs}

    with the rotations R of :mod:`lightning_modules.networks.rotary`, if there are any, and no biases.

    Args:
        d_model: width d.
        num_heads: heads H; ``D = d / H``.
        num_kv_heads: heads K of keys and values, each shared by ``H / K`` heads (grouped queries); None: H.

    Raises:
        ValueError: if H does not divide d, or K does not divide H.
    """

    causal = False

    def __init__(self, d_model: int, num_heads: int, num_kv_heads: int | None = None) -> None:
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if num_heads < 1 or d_model % num_heads:
            raise ValueError(f"d_model={d_model} cannot be cut into num_heads={num_heads}: use a divisor")
        if num_kv_heads < 1 or num_heads % num_kv_heads:
            raise ValueError(f"num_heads={num_heads} cannot share num_kv_heads={num_kv_heads} equally: use a divisor")
        self.head_dim, self.grouped = d_model // num_heads, num_kv_heads < num_heads
        self.query = nn.Linear(d_model, d_model, bias=False)
        self.key = nn.Linear(d_model, num_kv_heads * self.head_dim, bias=False)
        self.value = nn.Linear(d_model, num_kv_heads * self.head_dim, bias=False)
        self.output = nn.Linear(d_model, d_model, bias=False)

    def residual_weights(self) -> Iterable[Tensor]:
        """Return the matrix whose product is added to the residual stream."""
        return [self.output.weight]

    def forward(self, x_BTd: Tensor, rotation: tuple[Tensor, Tensor] | None = None, mask_B1TT: Tensor | None = None) -> Tensor:
        """Return the attended values.

        Args:
            x_BTd: tokens, ``[B, T, d]``.
            rotation: cosines and sines, ``[T, D / 2]`` each; None: the order of the tokens does not count.
            mask_B1TT: True where the token of a row attends to that of a column, causality included, ``[B, 1, T, T]``; None: to
                all, or all before it.

        Returns:
            ``[B, T, d]``.
        """
        q_BHTD, k_BKTD, v_BKTD = (
            layer(x_BTd).unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        if rotation is not None:
            q_BHTD, k_BKTD = rotate(q_BHTD, *rotation), rotate(k_BKTD, *rotation)
        y_BHTD = scaled_dot_product_attention(
            q_BHTD,
            k_BKTD,
            v_BKTD,
            attn_mask=mask_B1TT,
            is_causal=self.causal and mask_B1TT is None,
            enable_gqa=self.grouped,
        )
        return self.output(y_BHTD.transpose(1, 2).flatten(2))


class CausalSelfAttention(SelfAttention):
    r"""The same, but each token attends to itself and to those before it: the sum is over :math:`s \le t`."""

    causal = True


def within_documents(documents_BT: Tensor) -> Tensor:
    """Return where a token may attend to an earlier one of its own document.

    Args:
        documents_BT: number of each token's document, ``[B, T]``.

    Returns:
        bool ``[B, 1, T, T]``, rows attend to columns.
    """
    same_BTT = documents_BT[:, :, None] == documents_BT[:, None, :]
    return torch.tril(same_BTT).unsqueeze(1)
