"""Complex layers on real parameters: linear map, modReLU and two normalisations over features.

A complex parameter is stored as a real tensor whose last axis holds real and imaginary part, so that gradient clipping,
averaging of parameters and collective communication see ordinary real tensors.

Legend: N nodes, F input features, d output features.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from lightning_modules.gesc.features import feature_product

SMALLEST_MODULUS = 1e-6
SMALLEST_DEVIATION = 1e-5


def complex_parameter(*shape: int) -> nn.Parameter:
    """Return an uninitialised complex parameter of ``shape`` as a real tensor ``[*shape, 2]``."""
    return nn.Parameter(torch.empty(*shape, 2))


def as_complex(parameter: Tensor) -> Tensor:
    """View a parameter ``[..., 2]`` as complex."""
    return torch.view_as_complex(parameter)


def uniform_by_fan_in_(parameter: Tensor, fan_in: int) -> None:
    """Draw real and imaginary part of every entry from U(-1/√fan_in, 1/√fan_in)."""
    bound = 1 / math.sqrt(max(fan_in, 1))
    nn.init.uniform_(parameter, -bound, bound)


def check_precision(tensor: Tensor, name: str) -> None:
    """Refuse half precision, as a dtype or by autocast.

    Raises:
        ValueError: if ``tensor`` is not of single or double precision (real or complex), or autocast is on for its device.
    """
    if tensor.dtype not in (torch.float32, torch.float64, torch.complex64, torch.complex128):
        raise ValueError(f"complex layers need 32-true or 64-true precision, {name} is {tensor.dtype}")
    if torch.is_autocast_enabled(tensor.device.type):
        raise ValueError("complex layers need 32-true or 64-true precision, but autocast is on (precision 16-mixed or bf16-mixed)")


class ComplexLinear(nn.Module):
    r"""Complex affine map :math:`z = x W^\top + b` with :math:`W \in \mathbb{C}^{d \times F}`.

    A real input, dense or sparse, is multiplied by the real and the imaginary part in one real product and never cast to complex.

    Args:
        in_features: F.
        out_features: d.
        bias: add :math:`b \in \mathbb{C}^d`, zero at the start.

    Shapes:
        - x: ``[N, F]``, real (dense or sparse CSR) or complex (dense);
        - output: ``[N, d]``, complex.

    Raises:
        ValueError: on half precision.

    Source: initialisation as in the authors' GESC program.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = complex_parameter(out_features, in_features)
        self.bias = complex_parameter(out_features) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw W uniformly by its fan-in and set b to zero."""
        uniform_by_fan_in_(self.weight, self.in_features)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x_NF: Tensor) -> Tensor:
        """Return the image of each row."""
        check_precision(x_NF, "x")
        check_precision(self.weight, "the weight")
        if x_NF.is_complex():
            z_Nd = x_NF @ as_complex(self.weight).t()
            return z_Nd if self.bias is None else z_Nd + as_complex(self.bias)
        both_parts_FD = self.weight.permute(1, 0, 2).flatten(1)
        z_ND = feature_product(x_NF, both_parts_FD)
        if self.bias is not None:
            z_ND = z_ND + self.bias.flatten()
        return torch.view_as_complex(z_ND.unflatten(-1, (self.out_features, 2)))

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


class ModReLU(nn.Module):
    r"""Shrink the modulus and keep the phase: :math:`z \mapsto \mathrm{relu}(|z| + b)\, z / \max(|z|, 10^{-6})`.

    It commutes with every phase rotation, and is the identity while b = 0, its initial value.

    Args:
        channels: length d of b.

    Source: Arjovsky, Shah, Bengio 2016 (arXiv 1511.06464), equation 8.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(channels))

    def reset_parameters(self) -> None:
        """Set b to zero."""
        nn.init.zeros_(self.bias)

    def forward(self, z_Nd: Tensor) -> Tensor:
        """Return the rectified rows, ``[N, d]`` complex."""
        modulus_Nd = z_Nd.abs()
        return functional.relu(modulus_Nd + self.bias) / modulus_Nd.clamp_min(SMALLEST_MODULUS) * z_Nd


class GaugeNorm(nn.Module):
    r"""Standardise each node over its features without touching its phase.

    .. math::
        \mu_i = \tfrac1d \sum_k h_{ik}, \qquad
        h_i \mapsto \frac{h_i - \mu_i}{\max\bigl(\sqrt{\tfrac1d \sum_k |h_{ik} - \mu_i|^2},\ 10^{-5}\bigr)}

    The mean is complex and the deviation real, so :math:`e^{i \varphi} h_i` is mapped to :math:`e^{i \varphi}` times the image
    of h_i.
    """

    def forward(self, h_Nd: Tensor) -> Tensor:
        """Return the standardised rows, ``[N, d]`` complex."""
        centered_Nd = h_Nd - h_Nd.mean(-1, keepdim=True)
        variance_N1 = torch.view_as_real(centered_Nd).square().sum(-1).mean(-1, keepdim=True)
        return centered_Nd / variance_N1.clamp_min(SMALLEST_DEVIATION**2).sqrt()


class SplitNorm(nn.Module):
    r"""Standardise real and imaginary part of each node separately, with the unbiased deviation, clamped at 1e-5.

    A rotation mixes the two parts, so this is **not** gauge-equivariant. It is what the authors' program does.

    Raises:
        ValueError: for fewer than two features, whose unbiased deviation is not defined.
    """

    def forward(self, h_Nd: Tensor) -> Tensor:
        """Return the standardised rows, ``[N, d]`` complex."""
        if h_Nd.shape[-1] < 2:
            raise ValueError("SplitNorm needs at least 2 channels: the deviation of one number is not defined")
        parts_Nd2 = torch.view_as_real(h_Nd)
        centered_Nd2 = parts_Nd2 - parts_Nd2.mean(-2, keepdim=True)
        variance_N12 = centered_Nd2.square().sum(-2, keepdim=True) / (h_Nd.shape[-1] - 1)
        return torch.view_as_complex(centered_Nd2 / variance_N12.clamp_min(SMALLEST_DEVIATION**2).sqrt())
