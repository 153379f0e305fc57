import math

import pytest
import torch

from lightning_modules.f_dpm_solver.schedules import (
    CosineVPSchedule,
    DiscreteVPSchedule,
    EDMSchedule,
    FlowLinearSchedule,
    is_linear_flow,
    is_variance_preserving,
    levels,
    levels_like,
)

DISCRETE = DiscreteVPSchedule.scaled_linear()
TIMES = {
    EDMSchedule(): [80.0, 1.0, 0.002],
    CosineVPSchedule(): [0.999, 0.5, 0.001],
    FlowLinearSchedule(): [0.999, 0.5, 0.001],
    DISCRETE: [999.0, 500.0, 400.25, 0.5, 0.0],
}


@pytest.mark.parametrize("schedule", TIMES, ids=lambda schedule: type(schedule).__name__)
def test_log_snr_belongs_to_alpha_and_sigma_and_time_inverts_it(schedule):
    t = torch.tensor(TIMES[schedule], dtype=torch.float64)
    alpha, sigma, log_snr = schedule.alpha(t), schedule.sigma(t), schedule.log_snr(t)
    assert torch.allclose(log_snr, (alpha / sigma).log(), rtol=1e-12, atol=1e-12)
    assert torch.allclose(schedule.time(log_snr), t, rtol=1e-10, atol=1e-10)
    assert (log_snr.diff() > 0).all()
    for one, value in zip(t.tolist(), alpha.tolist(), strict=True):
        assert schedule.alpha(one).item() == value
        assert schedule.time(schedule.log_snr(one)).dtype == torch.float64


def test_values_by_hand():
    assert levels(EDMSchedule(), 0.75) == pytest.approx((0.8, 0.6), abs=1e-15)
    assert EDMSchedule().log_snr(0.75).item() == pytest.approx(math.log(4 / 3))
    assert levels(CosineVPSchedule(), 1 / 3) == pytest.approx((math.sqrt(0.75), 0.5), abs=1e-15)
    assert levels(FlowLinearSchedule(), 0.25) == (0.75, 0.25)
    assert levels(CosineVPSchedule(), 1.0) == (0.0, 1.0)
    assert levels(FlowLinearSchedule(), 1.0) == (0.0, 1.0)


def test_discrete_times_give_the_table_and_halves_the_middle_of_log_snr():
    kept = torch.tensor([0.9, 0.5, 0.2], dtype=torch.float64)
    schedule = DiscreteVPSchedule(kept)
    whole = torch.arange(3)
    assert torch.allclose(schedule.alpha(whole), kept.sqrt(), atol=1e-15)
    assert torch.allclose(schedule.sigma(whole), (1 - kept).sqrt(), atol=1e-15)
    assert schedule.log_snr(0.5).item() == pytest.approx(0.25 * math.log(9), abs=1e-15)
    assert schedule.log_snr(0.75).item() == pytest.approx(0.125 * math.log(9), abs=1e-15)
    assert schedule.time(torch.tensor(0.25 * math.log(9))).item() == pytest.approx(0.5, abs=1e-6)
    assert schedule.time_range == (2.0, 0.0)


def test_latent_diffusion_has_its_betas():
    alpha = DISCRETE.alpha(torch.tensor([0.0, 999.0], dtype=torch.float64))
    assert alpha[0].item() ** 2 == pytest.approx(1 - 0.0015, abs=1e-14)
    steps = (1 - torch.linspace(0.0015**0.5, 0.0195**0.5, 1000, dtype=torch.float64) ** 2).prod()
    assert alpha[1].item() ** 2 == pytest.approx(steps.item(), rel=1e-10)


def test_a_table_may_end_without_signal():
    schedule = DiscreteVPSchedule(torch.tensor([0.9, 0.4, 0.0]))
    assert levels(schedule, 2.0) == (0.0, 1.0)
    assert schedule.alpha(1.0).item() == pytest.approx(0.4**0.5, rel=1e-6)
    assert schedule.log_snr(2.0).item() == -torch.inf
    inverse = schedule.time(
        torch.tensor([-torch.inf, schedule.log_snr(1.0).item(), schedule.log_snr(0.5).item()], dtype=torch.float64)
    )
    assert inverse.tolist() == pytest.approx([2.0, 1.0, 0.5])


@pytest.mark.parametrize("table", [[0.9, 0.9], [0.5, 0.9], [1.0, 0.5], [0.5, -0.1], [0.5], [[0.5, 0.2]]])
def test_a_table_that_does_not_fall_is_refused(table):
    with pytest.raises(ValueError, match="alphas_cumprod must be at least two numbers that fall strictly"):
        DiscreteVPSchedule(torch.tensor(table))


def test_levels_multiply_a_batch_of_times_of_their_own():
    x = torch.zeros(2, 3, 4, 4)
    alpha, sigma = levels_like(EDMSchedule(), torch.tensor([0.75, 4 / 3]), x)
    assert (alpha + x).shape == x.shape
    assert alpha.flatten().tolist() == pytest.approx([0.8, 0.6])
    assert sigma.flatten().tolist() == pytest.approx([0.6, 0.8])
    assert alpha.dtype == torch.float32
    assert levels_like(EDMSchedule(), 0.75, x)[0].shape == ()


def test_kinds_are_told_apart():
    assert [is_variance_preserving(schedule) for schedule in TIMES] == [True, True, False, True]
    assert [is_linear_flow(schedule) for schedule in TIMES] == [False, False, True, False]
