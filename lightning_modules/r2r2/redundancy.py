"""The two losses of R2R2: self-prediction and redundancy reduction without centring (plain torch).

Shape suffixes: B batch, d latent size.
"""

import inspect
import math
import warnings
from typing import Any, Literal

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional


class SelfPredictiveLoss(nn.Module):
    r"""Squared error of predicted next latents, mean over batch and features.

    .. math::
        L_\text{SPL} = \frac{1}{B d} \sum_{b,i} \left( T(\phi(s_b), a_b)_i - \mathrm{sg}(\phi(s'_b))_i \right)^2
    """

    def forward(self, predicted_Bd: Tensor, target_Bd: Tensor) -> Tensor:
        """Return the loss, a scalar; no gradient flows into ``target_Bd``.

        Raises:
            ValueError: if the shapes differ.
        """
        if predicted_Bd.shape != target_Bd.shape:
            raise ValueError(f"predicted latents are {list(predicted_Bd.shape)}, their targets {list(target_Bd.shape)}")
        return functional.mse_loss(predicted_Bd, target_Bd.detach())


class RedundancyReduction(nn.Module):
    r"""Keep the features of a batch orthogonal and alive.

    .. math::
        C = \frac{Z^\top Z}{B - 1}, \qquad
        L_\text{RR} = \frac{1}{d (d - 1)} \sum_{i \ne j} C_{ij}^2, \qquad
        L_\text{Var} = \frac{1}{d} \sum_i \max(0, v - \mathrm{std}_i), \qquad
        \mathrm{std}_i = \sqrt{\mathrm{Var}(z_i) + \epsilon}

    The mean is not taken off in :math:`C`: self-prediction wants the constant eigenvector of the transition matrix as one of its
    features, and a centred penalty cannot see it. The variance, of divisor B - 1, is centred.

    Both terms depend on the scale of Z. With unit-norm rows the first is at most :func:`unit_norm_bound` and hardly felt.

    Args:
        coef_rr: weight of the decorrelation.
        coef_var: weight of the variance hinge.
        target_std: the hinge v.
        centering: take C from Z - mean(Z), as VICReg does; an ablation.
        eps: added to the variance; with 0 a dead feature has no gradient.
        latent_scale: Z is multiplied by it here and nowhere else; ``sqrt_dim``: by :math:`\sqrt d`, for unit-norm latents.
        sync_batch: under data parallelism, take both terms over the batches of all ranks, which must be equally large, together
            instead of apart.

    Raises:
        ValueError: if an argument is out of range.

    Source: R2R2 (arXiv 2605.14026) and its code; the hinge and eps: VICReg (arXiv 2105.04906).
    """

    def __init__(
        self,
        coef_rr: float = 0.01,
        coef_var: float = 0.01,
        target_std: float = 1.0,
        centering: bool = False,
        eps: float = 1e-4,
        latent_scale: float | Literal["sqrt_dim"] = 1.0,
        sync_batch: bool = False,
    ) -> None:
        super().__init__()
        for name, value in (("coef_rr", coef_rr), ("coef_var", coef_var), ("target_std", target_std), ("eps", eps)):
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} of the redundancy reduction must be 0 or more, got {value}")
        if latent_scale != "sqrt_dim" and (isinstance(latent_scale, str) or not 0 < latent_scale < math.inf):
            raise ValueError(f"latent_scale must be positive or 'sqrt_dim', got {latent_scale!r}")
        if centering:
            warnings.warn("centred decorrelation ignores the constant eigenmode; use for ablation", stacklevel=2)
        self.coef_rr, self.coef_var, self.target_std = coef_rr, coef_var, target_std
        self.centering, self.eps, self.latent_scale, self.sync_batch = centering, eps, latent_scale, sync_batch

    def forward(self, z_Bd: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the weighted loss and what it is made of.

        Args:
            z_Bd: online features of the current states, shape ``[B, d]``; half precision is computed in float32.

        Returns:
            ``coef_rr * L_RR + coef_var * L_Var``, and without gradient ``rr`` and ``var``, the two terms before weighting,
            ``std_mean``, the mean standard deviation, and ``offdiag_abs``, the mean absolute entry of C off its diagonal.

        Raises:
            ValueError: if there are not at least two samples and two features, or the latents have other dimensions than these.
        """
        if self.sync_batch and distributed.is_available() and distributed.is_initialized():
            from torch.distributed.nn.functional import all_gather  # differentiable; not in builds of torch without distributed

            z_Bd = torch.cat(all_gather(z_Bd))
        with torch.autocast(z_Bd.device.type, enabled=False):
            rr, var, logs = self._terms(z_Bd)
            return self.coef_rr * rr + self.coef_var * var, logs

    def terms(self, z_Bd: Tensor) -> dict[str, Tensor]:
        """Return the two weighted terms apart, ``rr`` and ``var``, with gradients; nothing is gathered from other ranks."""
        with torch.autocast(z_Bd.device.type, enabled=False):
            rr, var, _ = self._terms(z_Bd)
            return {"rr": self.coef_rr * rr, "var": self.coef_var * var}

    def specification(self) -> dict[str, Any]:
        """Describe the regulariser in plain values, as a configuration file would: ``class_path`` and ``init_args``."""
        arguments = {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}
        return {"class_path": f"{type(self).__module__}.{type(self).__qualname__}", "init_args": arguments}

    def _terms(self, z_Bd: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        if z_Bd.ndim != 2:
            raise ValueError(f"redundancy reduction needs latents [samples, features], got {list(z_Bd.shape)}: flatten them")
        B, d = z_Bd.shape
        if B < 2 or d < 2:
            raise ValueError(f"redundancy reduction needs at least 2 samples and 2 features, got {B} and {d}")
        scale = math.sqrt(d) if self.latent_scale == "sqrt_dim" else self.latent_scale
        z_Bd = scale * (z_Bd if z_Bd.dtype == torch.float64 else z_Bd.float())
        std_d = (z_Bd.var(dim=0) + self.eps).sqrt() if self.eps else z_Bd.std(dim=0)  # torch's std has a gradient at 0
        if self.centering:
            z_Bd = z_Bd - z_Bd.mean(dim=0)
        lower_dd = (z_Bd.T @ z_Bd).tril(-1) / (B - 1)  # half of the symmetric C, exact even where C is almost diagonal
        pairs = d * (d - 1) / 2
        rr = lower_dd.square().sum() / pairs
        var = (self.target_std - std_d).relu().mean()
        with torch.no_grad():
            logs = {"rr": rr.detach(), "var": var.detach(), "std_mean": std_d.mean(), "offdiag_abs": lower_dd.abs().sum() / pairs}
        return rr, var, logs


def unit_norm_bound(batch_size: int, dim: int) -> float:
    r"""Return what L_RR of latents with unit-norm rows cannot exceed, :math:`(B / (B - 1))^2 / (d (d - 1))`.

    For then :math:`\lVert C \rVert_F \le \mathrm{tr}\, C = B / (B - 1)`.
    """
    return (batch_size / (batch_size - 1)) ** 2 / (dim * (dim - 1))
