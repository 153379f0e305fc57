"""Data whose best denoiser is known in closed form: exact scores to test samplers with (plain torch).

Legend: B samples, K components, d dimensions.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lightning_modules.f_dpm_solver.schedules import NoiseSchedule, Time, levels_like


class GaussianMixtureOracle(nn.Module):
    r"""Exact :math:`E[x_0 \mid x_t = x]` of a mixture of round Gaussians.

    .. math::
        D(x, t) = \sum_k r_k \Bigl( \mu_k + \frac{a \varsigma_k^2}{v_k} (x - a \mu_k) \Bigr), \qquad
        v_k = a^2 \varsigma_k^2 + s^2, \qquad r_k \propto w_k \, \mathcal N(x; a \mu_k, v_k I)

    Args:
        means_Kd: centres μ.
        stds_K: standard deviations ς.
        weights_K: weights w, which are made to sum to 1.
        schedule: noise schedule, whose times t are.

    Raises:
        ValueError: if shapes disagree, a standard deviation is negative or a weight is not positive.
    """

    means_Kd: Tensor
    variances_K: Tensor
    log_weights_K: Tensor

    def __init__(self, means_Kd: Tensor, stds_K: Tensor, weights_K: Tensor, schedule: NoiseSchedule) -> None:
        super().__init__()
        if means_Kd.ndim != 2 or not stds_K.shape == weights_K.shape == means_Kd.shape[:1]:
            shapes = [list(tensor.shape) for tensor in (means_Kd, stds_K, weights_K)]
            raise ValueError(f"a mixture needs means [K, d], stds [K] and weights [K], got {shapes}")
        if (stds_K < 0).any() or not (weights_K > 0).all():
            raise ValueError(f"a mixture needs stds >= 0 and weights > 0, got {stds_K.tolist()} and {weights_K.tolist()}")
        self.schedule = schedule
        self.register_buffer("means_Kd", means_Kd.double())
        self.register_buffer("variances_K", stds_K.double().square())
        self.register_buffer("log_weights_K", (weights_K.double() / weights_K.double().sum()).log())

    def forward(self, x_Bd: Tensor, t: Time) -> Tensor:
        """Return D, ``[B, d]``, at one time or at the time of each sample, ``[B]``."""
        a, s = levels_like(self.schedule, t, x_Bd)
        means_Kd, variances_K = self.means_Kd.to(x_Bd), self.variances_K.to(x_Bd)
        noisy_BK = a.square() * variances_K + s.square()
        offset_BKd = x_Bd.unsqueeze(-2) - a.unsqueeze(-1) * means_Kd
        log_density_BK = -0.5 * (offset_BKd.square().sum(-1) / noisy_BK + x_Bd.shape[-1] * noisy_BK.log())
        responsibility_BK = (self.log_weights_K.to(x_Bd) + log_density_BK).softmax(-1)
        pull_BK = a * variances_K / noisy_BK
        return (responsibility_BK.unsqueeze(-1) * (means_Kd + pull_BK.unsqueeze(-1) * offset_BKd)).sum(-2)

    def draw(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw data, ``[count, d]`` in float64."""
        component = torch.multinomial(self.log_weights_K.exp(), count, replacement=True, generator=generator)
        noise = torch.randn(count, self.means_Kd.shape[1], dtype=torch.float64, device=self.means_Kd.device, generator=generator)
        return self.means_Kd[component] + self.variances_K[component, None].sqrt() * noise


def ring_mixture(
    schedule: NoiseSchedule,
    num_components: int = 6,
    radius: float = 1.0,
    std: float = 0.15,
    weights: Sequence[float] | None = (0.1, 0.15, 0.2, 0.25, 0.1, 0.2),
) -> GaussianMixtureOracle:
    r"""Return a mixture with centres :math:`(\cos, \sin)(2 \pi k / K)` on a circle in the plane.

    Args:
        schedule: noise schedule.
        num_components: K.
        radius: of the circle.
        std: standard deviation of each component.
        weights: of the components; None makes them equal.

    Raises:
        ValueError: if there is not one weight for each component.
    """
    share = [1.0] * num_components if weights is None else list(weights)
    if len(share) != num_components:
        raise ValueError(f"{num_components} components need as many weights, got {len(share)}; None makes them equal")
    angle_K = 2 * math.pi * torch.arange(num_components, dtype=torch.float64) / num_components
    means_Kd = radius * torch.stack([angle_K.cos(), angle_K.sin()], dim=1)
    return GaussianMixtureOracle(means_Kd, torch.full((num_components,), std), torch.tensor(share), schedule)


class GaussianOracle(nn.Module):
    r"""Exact denoiser and exact flow of Gaussian data with covariance :math:`C = U \operatorname{diag}(l) U^\top`.

    .. math::
        D(x, t) = m + U \operatorname{diag} \Bigl( \frac{a l}{a^2 l + s^2} \Bigr) U^\top (x - a m)

    Args:
        mean_d: m.
        covariance_dd: C, symmetric and positive semidefinite.
        schedule: noise schedule.

    Raises:
        ValueError: if shapes disagree, or C is not symmetric and positive semidefinite.
    """

    mean_d: Tensor
    variances_d: Tensor
    axes_dd: Tensor

    def __init__(self, mean_d: Tensor, covariance_dd: Tensor, schedule: NoiseSchedule) -> None:
        super().__init__()
        if mean_d.ndim != 1 or covariance_dd.shape != (len(mean_d), len(mean_d)):
            raise ValueError(f"need a mean [d] and a covariance [d, d], got {list(mean_d.shape)} and {list(covariance_dd.shape)}")
        variances_d, axes_dd = torch.linalg.eigh(covariance_dd.double())
        if not torch.allclose(covariance_dd, covariance_dd.T) or variances_d[0] < -1e-9 * variances_d[-1].abs():
            raise ValueError("the covariance must be symmetric and positive semidefinite: use A @ A.T of some A")
        self.schedule = schedule
        self.register_buffer("mean_d", mean_d.double())
        self.register_buffer("variances_d", variances_d.clamp_min(0))
        self.register_buffer("axes_dd", axes_dd)

    def forward(self, x_Bd: Tensor, t: Time) -> Tensor:
        """Return D, ``[B, d]``, at one time or at the time of each sample, ``[B]``."""
        a, s = levels_like(self.schedule, t, x_Bd)
        mean_d, variances_d, axes_dd = self.mean_d.to(x_Bd), self.variances_d.to(x_Bd), self.axes_dd.to(x_Bd)
        pull = a * variances_d / (a.square() * variances_d + s.square())
        return mean_d + (pull * ((x_Bd - a * mean_d) @ axes_dd)) @ axes_dd.T

    def flow(self, x_Bd: Tensor, start: float, end: float) -> Tensor:
        r"""Return the exact solution of the probability-flow ODE, ``[B, d]``.

        .. math::
            x_e = a_e m + U \operatorname{diag} \Bigl( \sqrt{\frac{a_e^2 l + s_e^2}{a_b^2 l + s_b^2}} \Bigr) U^\top (x_b - a_b m)

        Args:
            x_Bd: states at the start.
            start: time b.
            end: time e.
        """
        (a_b, s_b), (a_e, s_e) = (levels_like(self.schedule, t, x_Bd) for t in (start, end))
        mean_d, variances_d, axes_dd = self.mean_d.to(x_Bd), self.variances_d.to(x_Bd), self.axes_dd.to(x_Bd)
        growth_d = ((a_e.square() * variances_d + s_e.square()) / (a_b.square() * variances_d + s_b.square())).sqrt()
        return a_e * mean_d + (growth_d * ((x_Bd - a_b * mean_d) @ axes_dd)) @ axes_dd.T


class PointMassOracle(nn.Module):
    r"""Denoiser of data that is one point: :math:`D = m`, and every method of order 1 in D is exact.

    Args:
        point: m, of the shape of a sample.
    """

    point: Tensor

    def __init__(self, point: Tensor) -> None:
        super().__init__()
        self.register_buffer("point", point)

    def forward(self, x: Tensor, t: Time) -> Tensor:
        return self.point.to(x).expand_as(x).clone()
