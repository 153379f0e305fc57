"""How much of a token is data at a time: the schedule κ of a discrete flow (plain torch).

Every method takes tensors of any shape (or a number) and answers in float64, in which :math:`1 - \\kappa` stays exact near t = 1.
"""

import math
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor


@runtime_checkable
class Scheduler(Protocol):
    r"""An increasing κ with :math:`\kappa(0) = 0` and :math:`\kappa(1) = 1`."""

    def kappa(self, t: Tensor | float) -> Tensor:
        """Return κ(t)."""
        ...

    def dkappa(self, t: Tensor | float) -> Tensor:
        """Return the slope κ'(t)."""
        ...

    def kappa_inverse(self, kappa: Tensor | float) -> Tensor:
        """Return the time at which κ has a value."""
        ...

    def log_one_minus_kappa(self, t: Tensor | float) -> Tensor:
        r"""Return :math:`\log(1 - \kappa(t))`."""
        ...


class PolynomialScheduler:
    r""":math:`\kappa(t) = t^n`.

    Args:
        n: a positive exponent.

    Raises:
        ValueError: if n is not positive.
    """

    def __init__(self, n: float = 1.0) -> None:
        if n <= 0:
            raise ValueError(f"PolynomialScheduler needs a positive exponent, got n={n}")
        self.n = n

    def kappa(self, t: Tensor | float) -> Tensor:
        return _double(t) ** self.n

    def dkappa(self, t: Tensor | float) -> Tensor:
        return self.n * _double(t) ** (self.n - 1)

    def kappa_inverse(self, kappa: Tensor | float) -> Tensor:
        return _double(kappa) ** (1 / self.n)

    def log_one_minus_kappa(self, t: Tensor | float) -> Tensor:
        return torch.log1p(-self.kappa(t))


class CosineScheduler:
    r""":math:`\kappa(t) = 1 - \cos(\tfrac\pi2 t)`: few tokens early, many late.

    Source: Chang et al. 2022 (arXiv 2202.04200), whose share of masked tokens is this cosine.
    """

    def kappa(self, t: Tensor | float) -> Tensor:
        return 2 * torch.sin(math.pi / 4 * _double(t)) ** 2

    def dkappa(self, t: Tensor | float) -> Tensor:
        return math.pi / 2 * torch.sin(math.pi / 2 * _double(t))

    def kappa_inverse(self, kappa: Tensor | float) -> Tensor:
        return 4 / math.pi * torch.asin(torch.sqrt(_double(kappa) / 2))

    def log_one_minus_kappa(self, t: Tensor | float) -> Tensor:
        return torch.log(torch.sin(math.pi / 2 * (1 - _double(t))))


class WrappedScheduler:
    """Another library's scheduler; see :func:`wrap_scheduler`."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler

    def kappa(self, t: Tensor | float) -> Tensor:
        return _double(self.scheduler(_double(t)).alpha_t)

    def dkappa(self, t: Tensor | float) -> Tensor:
        return _double(self.scheduler(_double(t)).d_alpha_t)

    def kappa_inverse(self, kappa: Tensor | float) -> Tensor:
        require_inverse(self)
        return _double(self.scheduler.kappa_inverse(_double(kappa)))

    def log_one_minus_kappa(self, t: Tensor | float) -> Tensor:
        return torch.log1p(-self.kappa(t))


def wrap_scheduler(scheduler: Any) -> Scheduler:
    """Return a scheduler as this package knows it.

    Args:
        scheduler: one of this package, or an object that answers ``scheduler(t)`` with ``alpha_t`` (κ) and ``d_alpha_t`` (κ'), as
            those of ``flow_matching`` do; with ``kappa_inverse`` if grids in log-ratio time or location correction are wanted.

    Raises:
        TypeError: if it is neither.
    """
    if isinstance(scheduler, Scheduler):
        return scheduler
    answer = scheduler(torch.tensor(0.5, dtype=torch.float64)) if callable(scheduler) else None
    if not hasattr(answer, "alpha_t") or not hasattr(answer, "d_alpha_t"):
        raise TypeError(
            f"{type(scheduler).__name__} is no scheduler: it needs kappa, dkappa, kappa_inverse and log_one_minus_kappa, "
            "or to answer scheduler(t) with alpha_t and d_alpha_t"
        )
    return WrappedScheduler(scheduler)


def require_inverse(scheduler: Scheduler) -> None:
    """Raise a TypeError if the scheduler cannot turn a value of κ into its time."""
    inner = scheduler.scheduler if isinstance(scheduler, WrappedScheduler) else scheduler
    if not callable(getattr(inner, "kappa_inverse", None)):
        raise TypeError(f"{type(inner).__name__} has no kappa_inverse(kappa), which log grids and location correction need: add it")


def hazard(scheduler: Scheduler, t: Tensor | float) -> Tensor:
    r"""Return :math:`\rho(t) = \kappa'(t) / (1 - \kappa(t))`, the rate at which a token turns into data."""
    return scheduler.dkappa(t) * torch.exp(-scheduler.log_one_minus_kappa(t))


def _double(value: Tensor | float) -> Tensor:
    return torch.as_tensor(value, dtype=torch.float64)
