"""Layers whose weights and features stay on unit spheres (plain torch).

With ``members=J`` a layer is J layers side by side, from ``[J, B, in]`` to ``[J, B, out]``; without, it maps ``[..., in]`` to
``[..., out]``.

Source: SimbaV2 (arXiv 2502.15280).
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

EPSILON = 1e-8


def l2_normalise(x: Tensor) -> Tensor:
    r"""Return :math:`x / \max(\lVert x \rVert_2, 10^{-8})` over the last axis."""
    return functional.normalize(x, dim=-1, eps=EPSILON)


class HyperDense(nn.Module):
    """Linear layer without bias, every unit of which has incoming weights of length 1.

    They have it at the start, from an orthogonal matrix; after each optimiser step :func:`renormalise` gives it back to them.
    """

    def __init__(self, in_dim: int, out_dim: int, members: int | None = None) -> None:
        super().__init__()
        matrices = [nn.init.orthogonal_(torch.empty(out_dim, in_dim)) for _ in range(members or 1)]
        weight = torch.stack(matrices) if members else matrices[0]
        self.weight = nn.Parameter(l2_normalise(weight))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.mT


class Scaler(nn.Module):
    r"""Multiply every feature by its own learned factor.

    The factor is a parameter times ``init / scale``. The parameter starts at ``scale``, so the factor at ``init``, and the ratio
    sets how fast it learns.
    """

    def __init__(self, dim: int, init: float = 1.0, scale: float = 1.0, members: int | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((members, 1, dim) if members else (dim,), scale))
        self.ratio = init / scale

    def forward(self, x: Tensor) -> Tensor:
        return x * (self.weight * self.ratio)


class Embedder(nn.Module):
    r"""Put inputs of any length on the unit sphere without losing their length.

    .. math::
        x \mapsto \mathrm{l2}(s \odot W\, \mathrm{l2}([x, c])), \qquad c = 3

    Shapes: ``[..., in]`` to ``[..., width]``.
    """

    shift = 3.0

    def __init__(self, in_dim: int, width: int, members: int | None = None) -> None:
        super().__init__()
        self.dense = HyperDense(in_dim + 1, width, members)
        self.scaler = Scaler(width, math.sqrt(2 / width), math.sqrt(2 / width), members)

    def forward(self, x: Tensor) -> Tensor:
        return l2_normalise(self.scaler(self.dense(l2_normalise(functional.pad(x, (0, 1), value=self.shift)))))


class LERPBlock(nn.Module):
    r"""Move a unit vector a learned part of the way to what a small perceptron makes of it, and back on the sphere.

    .. math::
        y = \mathrm{l2}\bigl(W_2 (\mathrm{relu}(s \odot W_1 x) + 10^{-8})\bigr), \qquad
        x \mapsto \mathrm{l2}(x + \alpha \odot (y - x))

    Args:
        width: length h of the vectors; the hidden layer has 4h.
        blocks: number L of blocks in the network; α starts at 1 / (L + 1).
        members: networks side by side.
    """

    expansion = 4

    def __init__(self, width: int, blocks: int, members: int | None = None) -> None:
        super().__init__()
        hidden = self.expansion * width
        scale = math.sqrt(2 / width / self.expansion)
        self.inner, self.outer = HyperDense(width, hidden, members), HyperDense(hidden, width, members)
        self.scaler = Scaler(hidden, scale, scale, members)
        self.alpha = Scaler(width, 1 / (blocks + 1), 1 / math.sqrt(width), members)

    def forward(self, x: Tensor) -> Tensor:
        y = l2_normalise(self.outer(self.scaler(self.inner(x)).relu() + EPSILON))
        return l2_normalise(x + self.alpha(y - x))


def hyper_weights(*modules: nn.Module) -> list[nn.Parameter]:
    """Collect the weights of all :class:`HyperDense` layers in these modules."""
    return [layer.weight for module in modules for layer in module.modules() if isinstance(layer, HyperDense)]


@torch.no_grad()
def renormalise(weights: Sequence[Tensor]) -> None:
    """Give every row (last axis) of these weights length 1, in place."""
    lengths = [torch.linalg.vector_norm(weight, dim=-1, keepdim=True) for weight in weights]
    torch._foreach_clamp_min_(lengths, EPSILON)
    torch._foreach_div_(list(weights), lengths)
