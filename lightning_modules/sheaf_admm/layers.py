"""Small layers that the encoders, decoders and baselines of the Sheaf-ADMM tasks share (plain torch)."""

import math

from torch import Tensor, nn

NORM_EPS = 1e-6
_TRUNCATED_STD = 0.87962566103423978  # standard deviation of a unit normal that is cut at two sigma


class Dense(nn.Linear):
    r"""Linear layer with LeCun initialisation: truncated normal weights of standard deviation
    :math:`1/\sqrt{\text{fan-in}}`, zero bias.

    The normal is cut at two of its own standard deviations and rescaled, so that what remains has the stated deviation.
    """

    def reset_parameters(self) -> None:
        std = self.in_features**-0.5 / _TRUNCATED_STD
        nn.init.trunc_normal_(self.weight, std=std, a=-2 * std, b=2 * std)
        if self.bias is not None:
            nn.init.zeros_(self.bias)


def gelu() -> nn.GELU:
    """GELU in its tanh form, the one that the released models use."""
    return nn.GELU(approximate="tanh")


class SwiGLU(nn.Module):
    r"""Gated two-layer perceptron :math:`W_3(\mathrm{silu}(W_1 x) \odot W_2 x)` over the last axis, all three with bias."""

    def __init__(self, dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.gate_and_value = Dense(dim, 2 * hidden_dim)
        self.out = Dense(hidden_dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.gate_and_value(x).chunk(2, dim=-1)
        return self.out(nn.functional.silu(gate) * value)


class MixerBlock(nn.Module):
    r"""Mix tokens, then channels, each with a skip and a norm after it.

    .. math::
        y \leftarrow \mathrm{RMSNorm}(y + \mathrm{SwiGLU}_{T \to 2T \to T}(y^\top)^\top), \qquad
        y \leftarrow \mathrm{RMSNorm}(y + \mathrm{SwiGLU}_{D \to 2D \to D}(y))

    Shapes: ``[..., T, D]`` to ``[..., T, D]``.
    """

    def __init__(self, tokens: int, dim: int) -> None:
        super().__init__()
        self.mix_tokens = SwiGLU(tokens, 2 * tokens)
        self.token_norm = nn.RMSNorm(dim, eps=NORM_EPS)
        self.mix_channels = SwiGLU(dim, 2 * dim)
        self.channel_norm = nn.RMSNorm(dim, eps=NORM_EPS)

    def forward(self, y: Tensor) -> Tensor:
        y = self.token_norm(y + self.mix_tokens(y.transpose(-1, -2)).transpose(-1, -2))
        return self.channel_norm(y + self.mix_channels(y))


class ResidualMLP(nn.Module):
    r"""Perceptron with a projected skip: :math:`W_s x + W_2\,\mathrm{GELU}(W_1\,\mathrm{RMSNorm}(x))`."""

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.skip = Dense(in_dim, out_dim)
        self.branch = nn.Sequential(nn.RMSNorm(in_dim, eps=NORM_EPS), Dense(in_dim, out_dim), gelu(), Dense(out_dim, out_dim))

    def forward(self, x: Tensor) -> Tensor:
        return self.skip(x) + self.branch(x)


def softplus_inverse(value: float) -> float:
    """Return the number whose softplus is ``value > 0``."""
    return value + math.log(-math.expm1(-value))


class PositiveDense(Dense):
    r"""Strictly positive head :math:`\mathrm{softplus}(Wx + b) + \text{floor}`.

    Args:
        in_dim, out_dim: sizes.
        floor: least value.
        start: value of every output at the start of training, with zero weights; None draws the weights.
    """

    def __init__(self, in_dim: int, out_dim: int, floor: float = 1e-4, start: float | None = None) -> None:
        super().__init__(in_dim, out_dim)
        self.floor = floor
        if start is not None:
            nn.init.zeros_(self.weight)
            nn.init.constant_(self.bias, softplus_inverse(start - floor))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.softplus(super().forward(x)) + self.floor
