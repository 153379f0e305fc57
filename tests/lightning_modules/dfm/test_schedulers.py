import math
from types import SimpleNamespace

import pytest
import torch

from lightning_modules.dfm.schedulers import CosineScheduler, PolynomialScheduler, Scheduler, hazard, wrap_scheduler

SCHEDULERS = [PolynomialScheduler(), PolynomialScheduler(2.5), CosineScheduler()]
TIMES = torch.linspace(0, 0.999, 50, dtype=torch.float64)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_slope_inverse_and_logarithm_belong_together(scheduler: Scheduler):
    t = TIMES.clone().requires_grad_()
    kappa = scheduler.kappa(t)
    (slope,) = torch.autograd.grad(kappa.sum(), t)
    assert torch.allclose(slope, scheduler.dkappa(TIMES), atol=1e-12)
    assert torch.allclose(scheduler.kappa_inverse(kappa.detach()), TIMES, atol=1e-12)
    assert torch.allclose(scheduler.log_one_minus_kappa(TIMES), torch.log1p(-kappa.detach()), atol=1e-9)
    assert scheduler.kappa(0.0).item() == 0
    assert scheduler.kappa(1.0).item() == pytest.approx(1)
    assert kappa.dtype == torch.float64


def test_values_by_hand():
    assert PolynomialScheduler(2).kappa(0.5).item() == 0.25
    assert CosineScheduler().kappa(2 / 3).item() == pytest.approx(0.5)
    assert hazard(PolynomialScheduler(), 0.75).item() == pytest.approx(4)
    assert hazard(PolynomialScheduler(2), 0.5).item() == pytest.approx(1 / 0.75)
    late = 1 - 1e-12
    assert PolynomialScheduler().log_one_minus_kappa(late).item() == pytest.approx(math.log(1e-12), rel=1e-5)


class Foreign:
    """A scheduler in the manner of another library."""

    def __call__(self, t: torch.Tensor) -> SimpleNamespace:
        return SimpleNamespace(alpha_t=t**2, sigma_t=1 - t**2, d_alpha_t=2 * t, d_sigma_t=-2 * t)


class Invertible(Foreign):
    def kappa_inverse(self, kappa: torch.Tensor) -> torch.Tensor:
        return kappa.sqrt()


def test_other_schedulers_are_wrapped():
    ours, theirs = PolynomialScheduler(2), wrap_scheduler(Invertible())
    for method in ("kappa", "dkappa", "kappa_inverse", "log_one_minus_kappa"):
        assert torch.allclose(getattr(theirs, method)(TIMES), getattr(ours, method)(TIMES))
    assert wrap_scheduler(ours) is ours
    with pytest.raises(TypeError, match="Foreign has no kappa_inverse"):
        wrap_scheduler(Foreign()).kappa_inverse(0.5)
    with pytest.raises(TypeError, match="dict is no scheduler"):
        wrap_scheduler({})
    with pytest.raises(ValueError, match="positive exponent"):
        PolynomialScheduler(0)
