"""Noise schedules: how much signal and how much noise a state holds at a time (plain torch).

Legend: T discrete times.
"""

import math
from typing import Protocol

import torch
from torch import Tensor

Time = float | Tensor


class NoiseSchedule(Protocol):
    r"""Marginals :math:`x_t = \alpha_t x_0 + \sigma_t \epsilon` of a diffusion.

    All functions take numbers or tensors. A number becomes a float64 tensor.

    Attributes:
        time_range: the time of most noise and the time of least noise at which a network is asked.
    """

    time_range: tuple[float, float]

    def alpha(self, t: Time) -> Tensor:
        """Signal α."""
        ...

    def sigma(self, t: Time) -> Tensor:
        """Noise σ."""
        ...

    def log_snr(self, t: Time) -> Tensor:
        r"""Return :math:`\lambda = \log (\alpha / \sigma)`, which falls with noise."""
        ...

    def time(self, log_snr: Time) -> Tensor:
        """Time at a value of λ."""
        ...


def _tensor(value: Time) -> Tensor:
    if not isinstance(value, Tensor):
        return torch.tensor(value, dtype=torch.float64)
    return value if value.is_floating_point() else value.double()


class EDMSchedule:
    r"""Time is the noise level of EDM, in variance-preserving coordinates.

    .. math::
        \alpha = \frac{1}{\sqrt{1 + t^2}}, \qquad \sigma = \frac{t}{\sqrt{1 + t^2}}, \qquad \lambda = -\log t

    Source: Karras et al. 2022 (arXiv 2206.00364).
    """

    time_range = (80.0, 0.002)

    def alpha(self, t: Time) -> Tensor:
        return (1 + _tensor(t).square()).rsqrt()

    def sigma(self, t: Time) -> Tensor:
        return _tensor(t) * self.alpha(t)

    def log_snr(self, t: Time) -> Tensor:
        return -_tensor(t).log()

    def time(self, log_snr: Time) -> Tensor:
        return (-_tensor(log_snr)).exp()


class CosineVPSchedule:
    r"""Variance-preserving schedule on the quarter of a circle, for times from 0 (data) to 1 (noise).

    .. math::
        \alpha = \cos \tfrac{\pi t}{2}, \qquad \sigma = \sin \tfrac{\pi t}{2}

    Source: Nichol and Dhariwal 2021 (arXiv 2102.09672), without their offset; Salimans and Ho 2022 (arXiv 2202.00512).
    """

    time_range = (1.0, 1e-3)

    def alpha(self, t: Time) -> Tensor:
        return (math.pi / 2 * (1 - _tensor(t))).sin()

    def sigma(self, t: Time) -> Tensor:
        return (math.pi / 2 * _tensor(t)).sin()

    def log_snr(self, t: Time) -> Tensor:
        return (self.alpha(t) / self.sigma(t)).log()

    def time(self, log_snr: Time) -> Tensor:
        return (-_tensor(log_snr)).exp().atan() * (2 / math.pi)


class FlowLinearSchedule:
    r"""Straight paths of rectified flow, for times from 0 (data) to 1 (noise).

    .. math::
        \alpha = 1 - t, \qquad \sigma = t

    Source: Liu et al. 2022 (arXiv 2209.03003).
    """

    time_range = (1.0, 1e-3)

    def alpha(self, t: Time) -> Tensor:
        return 1 - _tensor(t)

    def sigma(self, t: Time) -> Tensor:
        return _tensor(t).clone()

    def log_snr(self, t: Time) -> Tensor:
        return -_tensor(t).logit()

    def time(self, log_snr: Time) -> Tensor:
        return (-_tensor(log_snr)).sigmoid()


class DiscreteVPSchedule:
    r"""Variance-preserving schedule of a network trained on T discrete times 0 .. T-1.

    .. math::
        \alpha_t = \sqrt{\bar\alpha_t}, \qquad \sigma_t = \sqrt{1 - \bar\alpha_t}

    Between two times λ is interpolated linearly; a last time without signal (λ = -∞) stands alone.

    Args:
        alphas_cumprod: :math:`\bar\alpha`, falling, ``[T]``.

    Raises:
        ValueError: if the values do not fall strictly from below 1 to 0 or more.

    Source: Ho et al. 2020 (arXiv 2006.11239); Lu et al. 2022 (arXiv 2206.00927), appendix D.4.
    """

    def __init__(self, alphas_cumprod: Tensor) -> None:
        table_T = alphas_cumprod.detach().double().cpu()
        if table_T.ndim != 1 or len(table_T) < 2 or not ((table_T >= 0) & (table_T < 1)).all() or not (table_T.diff() < 0).all():
            raise ValueError(
                "alphas_cumprod must be at least two numbers that fall strictly, each in [0, 1), "
                f"got shape {list(table_T.shape)} from {table_T.max().item():.6g} down to {table_T.min().item():.6g}"
            )
        self.log_snr_T = 0.5 * (table_T.log() - (-table_T).log1p())
        self.time_range = (float(len(table_T) - 1), 0.0)

    @classmethod
    def scaled_linear(cls, steps: int = 1000, beta_start: float = 0.0015, beta_end: float = 0.0195) -> "DiscreteVPSchedule":
        """Return the schedule of latent diffusion, whose √β is linear (Rombach et al. 2022, arXiv 2112.10752)."""
        beta_T = torch.linspace(beta_start**0.5, beta_end**0.5, steps, dtype=torch.float64).square()
        return cls((1 - beta_T).cumprod(0))

    def alpha(self, t: Time) -> Tensor:
        return (2 * self.log_snr(t)).sigmoid().sqrt()

    def sigma(self, t: Time) -> Tensor:
        return (-2 * self.log_snr(t)).sigmoid().sqrt()

    def log_snr(self, t: Time) -> Tensor:
        time = _tensor(t)
        table_T = self.log_snr_T.to(time.device)
        left = time.double().floor().clamp(0, len(table_T) - 2)
        weight, index = time.double() - left, left.long()
        inside = torch.lerp(table_T[index], table_T[index + 1], weight)
        exact = torch.where(weight == 1, table_T[index + 1], table_T[index])
        return torch.where((weight == 0) | (weight == 1), exact, inside).to(time.dtype)

    def time(self, log_snr: Time) -> Tensor:
        value = _tensor(log_snr)
        rising_T = self.log_snr_T.to(value.device).flip(0)
        wanted = value.double().contiguous()
        right = torch.searchsorted(rising_T, wanted).clamp(1, len(rising_T) - 1)
        low, high = rising_T[right - 1], rising_T[right]
        fraction = torch.where(wanted == low, 0.0, torch.where((wanted == high) | low.isinf(), 1.0, (wanted - low) / (high - low)))
        return (len(rising_T) - right - fraction).to(value.dtype)


def levels(schedule: NoiseSchedule, t: float) -> tuple[float, float]:
    """Return α and σ at one time as numbers."""
    return schedule.alpha(t).item(), schedule.sigma(t).item()


def levels_like(schedule: NoiseSchedule, t: Time, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return α and σ, of one time or of the time of each sample, so that they multiply a batch ``[B, ...]``."""
    time = _tensor(t)
    shape = (-1, *[1] * (x.ndim - 1)) if time.ndim == 1 else ()
    alpha, sigma = schedule.alpha(time), schedule.sigma(time)
    return alpha.to(x).reshape(shape), sigma.to(x).reshape(shape)


def is_variance_preserving(schedule: NoiseSchedule) -> bool:
    """Say whether α² + σ² = 1 in the middle of the schedule's times."""
    alpha, sigma = levels(schedule, _middle(schedule))
    return abs(alpha**2 + sigma**2 - 1) < 1e-6


def is_linear_flow(schedule: NoiseSchedule) -> bool:
    """Say whether α + σ = 1 in the middle of the schedule's times."""
    return abs(sum(levels(schedule, _middle(schedule))) - 1) < 1e-6


def _middle(schedule: NoiseSchedule) -> float:
    noisiest, cleanest = schedule.time_range
    return (noisiest + cleanest) / 2
