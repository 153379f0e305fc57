"""The exponential linear unit, several times as fast on a CPU as torch's own (plain torch)."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def elu(x: Tensor) -> Tensor:
    r"""Return :math:`\max(x, e^{\min(x, 0)} - 1)`.

    Torch's CPU kernel computes ``expm1``, which takes about ten times as long as ``exp`` and is more exact only where the result is
    near zero: there this one errs by up to 1e-7.
    """
    if x.is_cuda or torch.compiler.is_compiling():
        return functional.elu(x)
    return _ELU.apply(x) if torch.is_grad_enabled() and x.requires_grad else _elu(x)


def _elu(x: Tensor) -> Tensor:
    return torch.maximum(x, x.clamp_max(0.0).exp_().sub_(1.0))


class _ELU(torch.autograd.Function):
    """The derivative is 1 where the result is positive, and the result plus 1 elsewhere."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = _elu(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (gradient,), (y,) = gradients, ctx.saved_tensors
        return torch.addcmul(gradient, gradient, y.clamp_max(0.0))
