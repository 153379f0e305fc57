"""The times between which a solver steps (plain torch).

Legend: N steps.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lightning_modules.dfm.schedulers import Scheduler, hazard, require_inverse

GRIDS = ("log", "uniform")


@dataclass(frozen=True)
class Step:
    r"""One step, from ``start`` to ``end``.

    Args:
        index: number of the step, from 0.
        start: :math:`t_k`.
        end: :math:`t_{k+1}`.
        hazard: :math:`\rho = \kappa'(t_k) / (1 - \kappa(t_k))`.
        log_survival: :math:`\log(1 - \kappa(t_k))`.
        log_ratio: :math:`R = \log((1 - \kappa(t_k)) / (1 - \kappa(t_{k+1})))`, the integral of the hazard over the step.
    """

    index: int
    start: float
    end: float
    hazard: float
    log_survival: float
    log_ratio: float

    @property
    def length(self) -> float:
        """:math:`h = t_{k+1} - t_k`."""
        return self.end - self.start


@dataclass(frozen=True)
class TimeGrid:
    r"""Rising times.

    Args:
        t: times, float64 ``[N + 1]``, on the CPU.
        log_survival: :math:`\log(1 - \kappa)` at these times.
        scheduler: κ.
    """

    t: Tensor
    log_survival: Tensor
    scheduler: Scheduler

    @property
    def ends_at_one(self) -> bool:
        """Whether the last step would have to finish every token."""
        return self.t[-1].item() >= 1

    def without_last_step(self) -> "TimeGrid":
        """Return the grid that stops one step earlier."""
        return TimeGrid(self.t[:-1], self.log_survival[:-1], self.scheduler)

    def steps(self) -> list[Step]:
        """Return the N steps."""
        t, log_survival = self.t.tolist(), self.log_survival.tolist()
        rho = hazard(self.scheduler, self.t[:-1]).tolist()
        return [Step(k, t[k], t[k + 1], rho[k], log_survival[k], log_survival[k] - log_survival[k + 1]) for k in range(len(t) - 1)]


def make_time_grid(
    scheduler: Scheduler,
    n_steps: int | None = None,
    time_grid: Tensor | Sequence[float] | None = None,
    step_size: float | None = None,
    delta: float = 0.05,
    grid: str = "log",
) -> TimeGrid:
    r"""Make a grid from a number of steps, from its times, or from the length of a step.

    .. math::
        1 - \kappa(t_k) = \delta^{k/N} \quad (\text{log}), \qquad t_k = \tfrac kN (1 - \delta) \quad (\text{uniform})

    Args:
        scheduler: κ.
        n_steps: N.
        time_grid: the times themselves; with ``step_size`` only the first and the last count.
        step_size: length of a step, the last one may be shorter; the times run from 0 to 1 − δ unless ``time_grid`` says otherwise.
        delta: what is left of time (uniform) or of :math:`1 - \kappa` (log) at the end.
        grid: ``log`` or ``uniform``.

    Raises:
        ValueError: if the arguments contradict each other or times do not rise within 0 and 1.
        TypeError: if the log grid meets a scheduler without ``kappa_inverse``.
    """
    if not 0 < delta < 1:
        raise ValueError(f"delta={delta} must lie between 0 and 1: the rates of a discrete flow explode at t = 1")
    if (n_steps is None) == (time_grid is None and step_size is None):
        raise ValueError("a solver needs n_steps, or time_grid and/or step_size, and not both")
    if n_steps is not None:
        if n_steps < 1:
            raise ValueError(f"a solver needs at least one step, got n_steps={n_steps}")
        if grid not in GRIDS:
            raise ValueError(f"grid={grid!r} must be one of {', '.join(GRIDS)}")
        share = torch.arange(n_steps + 1, dtype=torch.float64) / n_steps
        if grid == "log":
            require_inverse(scheduler)
            log_survival = share * math.log(delta)
            return TimeGrid(scheduler.kappa_inverse(-torch.expm1(log_survival)), log_survival, scheduler)
        t = share * (1 - delta)
    else:
        t = torch.as_tensor([0.0, 1 - delta] if time_grid is None else time_grid, dtype=torch.float64).cpu()
        if t.ndim != 1 or len(t) < 2 or not bool((t.diff() > 0).all()) or t[0] < 0 or t[-1] > 1:
            raise ValueError(f"time_grid must hold at least two times that rise from 0 or later to 1 or earlier, got {t.tolist()}")
        if step_size is not None:
            if step_size <= 0:
                raise ValueError(f"step_size={step_size} must be positive")
            count = math.ceil((t[-1] - t[0]).item() / step_size - 1e-9)
            t = torch.cat([t[0] + step_size * torch.arange(count, dtype=torch.float64), t[-1:]])
    return TimeGrid(t, scheduler.log_one_minus_kappa(t), scheduler)
