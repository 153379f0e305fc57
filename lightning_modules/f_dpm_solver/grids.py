"""Grids of noise levels that a sampler walks along, from noise to data (plain torch).

Legend: N steps, hence N + 1 points.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from lightning_modules.f_dpm_solver.schedules import DiscreteVPSchedule, NoiseSchedule

GridKind = Literal["karras", "log_snr", "uniform_t", "discrete"]


class GridNumbers(NamedTuple):
    """The points of a grid as numbers, from which samplers compute their coefficients.

    Attributes:
        t: times.
        a: signal.
        s: noise.
        log_snr: log(a / s).
    """

    t: list[float]
    a: list[float]
    s: list[float]
    log_snr: list[float]


@dataclass(frozen=True, eq=False)
class Grid:
    r"""Times with their signal a and noise s, from the noisiest point to the cleanest; a state is :math:`a x_0 + s \epsilon`.

    The first point may hold no signal (a = 0) and the last no noise (s = 0); each sampler says whether it can start or end there.

    Args:
        t: times of the schedule, float64 ``[N + 1]`` on the CPU.
        a: signal, ``[N + 1]``.
        s: noise, ``[N + 1]``.
        schedule: the schedule they come from, for samplers that evaluate the network between the points.

    Raises:
        ValueError: if there are fewer than two points, shapes differ, or :math:`\log(a/s)` does not rise strictly.
    """

    t: Tensor
    a: Tensor
    s: Tensor
    schedule: NoiseSchedule | None = None

    def __post_init__(self) -> None:
        for name in ("t", "a", "s"):
            object.__setattr__(self, name, getattr(self, name).detach().to("cpu", torch.float64))
        if self.t.ndim != 1 or not self.t.shape == self.a.shape == self.s.shape or len(self.t) < 2:
            shapes = [list(points.shape) for points in (self.t, self.a, self.s)]
            raise ValueError(f"a grid needs N + 1 >= 2 points of t, a and s each, got shapes {shapes}")
        if not bool((self.a >= 0).all() and (self.s >= 0).all()):
            raise ValueError(f"a grid needs signal and noise of at least 0, got a = {self.a.tolist()}, s = {self.s.tolist()}")
        rises = self.log_snr.diff() > 0
        if not rises.all():
            stuck = sorted({time for step in (~rises).nonzero().flatten().tolist() for time in self.t[step : step + 2].tolist()})
            raise ValueError(
                f"the grid of N = {self.steps} steps does not rise strictly in log(a/s) at the times {stuck}: "
                "take fewer steps, or order the points from noise to data"
            )

    @property
    def steps(self) -> int:
        """N."""
        return len(self.t) - 1

    @property
    def log_snr(self) -> Tensor:
        r"""Return :math:`\lambda = \log(a/s)`, ``[N + 1]``."""
        return self.a.log() - self.s.log()

    @cached_property
    def numbers(self) -> GridNumbers:
        """All points as numbers."""
        return GridNumbers(self.t.tolist(), self.a.tolist(), self.s.tolist(), self.log_snr.tolist())


def make_grid(
    schedule: NoiseSchedule,
    steps: int,
    kind: GridKind = "karras",
    *,
    sigma_max: float | None = None,
    sigma_min: float | None = None,
    rho: float = 7.0,
    t_max: float | None = None,
    t_min: float | None = None,
) -> Grid:
    r"""Return N steps of a schedule.

    ``karras`` spaces the ratio :math:`\varsigma = s / a` (the noise level of EDM) as

    .. math::
        \varsigma_i = \Bigl( \varsigma_{\max}^{1/\rho}
            + \tfrac{i}{N} \bigl( \varsigma_{\min}^{1/\rho} - \varsigma_{\max}^{1/\rho} \bigr) \Bigr)^\rho,

    ``log_snr`` spaces its logarithm evenly, ``uniform_t`` the time, and ``discrete`` takes the whole times nearest to evenly spaced
    ones, as networks trained on discrete times expect.

    Args:
        schedule: the schedule.
        steps: N.
        kind: spacing.
        sigma_max: largest :math:`s/a`; None takes that of the schedule's ``time_range``. For ``karras`` and ``log_snr``.
        sigma_min: smallest :math:`s/a`, likewise.
        rho: curvature of ``karras``.
        t_max: time of most noise; None takes the schedule's own. For ``uniform_t`` and ``discrete``.
        t_min: time of least noise, likewise.

    Raises:
        ValueError: if N < 1, limits are not in order, belong to the other kinds or are infinite, lie outside a table, or rounded
            times repeat.

    Source: Karras et al. 2022 (arXiv 2206.00364), equation 5; Lu et al. 2022 (arXiv 2206.00927), section 3.4.
    """
    if steps < 1:
        raise ValueError(f"a grid needs at least one step, got N = {steps}")
    times, ratios = (t_max, t_min), (sigma_max, sigma_min)
    if kind in ("karras", "log_snr"):
        if times != (None, None):
            raise ValueError(f"a {kind} grid takes sigma_max and sigma_min, not t_max and t_min")
        t = schedule.time(-_spaced_log_ratio(schedule, steps, kind, ratios, rho))
        if isinstance(schedule, DiscreteVPSchedule) and (t.max() > schedule.time_range[0] + 1e-6 or t.min() < -1e-6):
            raise ValueError(
                f"a schedule of discrete times holds s/a from {_ratio(schedule, 1):.6g} to {_ratio(schedule, 0):.6g}: "
                "take sigma_min and sigma_max from there, or None"
            )
    elif kind in ("uniform_t", "discrete"):
        if ratios != (None, None):
            raise ValueError(f"a {kind} grid takes t_max and t_min, not sigma_max and sigma_min")
        first, last = (own if own is not None else limit for own, limit in zip(times, schedule.time_range, strict=True))
        t = torch.linspace(last, first, steps + 1, dtype=torch.float64).flip(0)
        if kind == "discrete":
            t = t.round()
    else:
        raise ValueError(f"unknown grid {kind!r}: choose karras, log_snr, uniform_t or discrete")
    return Grid(t, schedule.alpha(t), schedule.sigma(t), schedule)


def _spaced_log_ratio(
    schedule: NoiseSchedule, steps: int, kind: str, ratios: tuple[float | None, float | None], rho: float
) -> Tensor:
    """Return log(s/a) of each point, ``[N + 1]``."""
    largest, smallest = (limit if limit is not None else _ratio(schedule, end) for end, limit in enumerate(ratios))
    if not 0 < smallest < largest < float("inf"):
        raise ValueError(f"a {kind} grid needs 0 < sigma_min < sigma_max < inf, got {smallest:.6g} and {largest:.6g}: give both")
    fraction = torch.linspace(0, 1, steps + 1, dtype=torch.float64)
    first, last = torch.tensor([largest, smallest], dtype=torch.float64)
    if kind == "log_snr":
        return torch.lerp(first.log(), last.log(), fraction)
    return rho * torch.lerp(first.pow(1 / rho), last.pow(1 / rho), fraction).log()


def _ratio(schedule: NoiseSchedule, end: int) -> float:
    """Return s/a at the noisy (0) or the clean (1) end of a schedule."""
    return schedule.log_snr(schedule.time_range[end]).neg().exp().item()


def refined(grid: Grid, parts: int) -> Grid:
    r"""Return the grid with every step cut in equal parts of λ.

    Args:
        grid: points, with their schedule.
        parts: parts of a step.

    Raises:
        ValueError: if the grid does not know its schedule, or an end is infinite.
    """
    if grid.schedule is None:
        raise ValueError("points between those of a grid need its schedule: build it with make_grid, or give Grid(schedule=...)")
    log_snr = grid.log_snr
    if not log_snr.isfinite().all():
        raise ValueError("a grid that starts without signal or ends without noise has no middle of its steps: move its ends")
    fractions = torch.arange(parts, dtype=torch.float64) / parts
    inside = torch.lerp(log_snr[:-1, None], log_snr[1:, None], fractions)
    t = torch.cat([grid.schedule.time(inside).flatten(), grid.t[-1:]])
    t[:-1:parts] = grid.t[:-1]
    return Grid(t, grid.schedule.alpha(t), grid.schedule.sigma(t), grid.schedule)
