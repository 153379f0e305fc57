import pytest
import torch

from lightning_modules.f_dpm_solver.grids import Grid, make_grid, refined
from lightning_modules.f_dpm_solver.schedules import DiscreteVPSchedule, EDMSchedule, FlowLinearSchedule

DISCRETE = DiscreteVPSchedule.scaled_linear()


def test_karras_by_hand():
    grid = make_grid(EDMSchedule(), 2)
    middle = (0.5 * (80 ** (1 / 7) + 0.002 ** (1 / 7))) ** 7
    assert grid.t.tolist() == pytest.approx([80, middle, 0.002], rel=1e-12)
    assert (grid.s / grid.a).tolist() == pytest.approx([80, middle, 0.002], rel=1e-12)
    assert (grid.a**2 + grid.s**2).tolist() == pytest.approx([1, 1, 1], abs=1e-15)
    assert grid.t.dtype == grid.a.dtype == torch.float64
    assert grid.steps == 2


def test_log_snr_is_even_on_any_schedule():
    for schedule in (EDMSchedule(), FlowLinearSchedule(), DISCRETE):
        grid = make_grid(schedule, 7, "log_snr", sigma_max=10, sigma_min=0.1)
        assert torch.allclose(grid.log_snr.diff(), torch.full((7,), torch.tensor(100.0).log().item() / 7, dtype=torch.float64))
        assert (grid.s / grid.a)[[0, -1]].tolist() == pytest.approx([10, 0.1], rel=1e-10)


def test_time_is_even_and_discrete_times_are_whole():
    assert make_grid(FlowLinearSchedule(), 4, "uniform_t", t_min=0.2).t.tolist() == pytest.approx([1, 0.8, 0.6, 0.4, 0.2])
    grid = make_grid(DISCRETE, 5, "discrete")
    assert grid.t.tolist() == [999, 799, 599, 400, 200, 0]
    assert grid.s[-1].item() ** 2 == pytest.approx(0.0015, rel=1e-10)


def test_a_schedule_brings_its_own_limits():
    assert make_grid(EDMSchedule(), 3).t[[0, -1]].tolist() == pytest.approx([80, 0.002])
    assert make_grid(DISCRETE, 3, "karras").t[[0, -1]].tolist() == pytest.approx([999, 0], abs=1e-8)


def test_numbers_are_the_points():
    grid = make_grid(EDMSchedule(), 3)
    assert grid.numbers.t == grid.t.tolist()
    assert grid.numbers.log_snr == grid.log_snr.tolist()


def test_a_refined_grid_keeps_its_points_and_cuts_log_snr():
    grid = make_grid(DISCRETE, 4, "discrete")
    fine = refined(grid, 3)
    assert fine.t[::3].tolist() == grid.t.tolist()
    assert torch.allclose(fine.log_snr[1] - fine.log_snr[0], (grid.log_snr[1] - grid.log_snr[0]) / 3, atol=1e-10)
    assert fine.steps == 12


def test_repeated_rounded_times_are_named():
    with pytest.raises(ValueError, match=r"N = 12 steps does not rise strictly .* take fewer steps"):
        make_grid(DiscreteVPSchedule(torch.linspace(0.99, 0.01, 10)), 12, "discrete")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": 0}, "at least one step, got N = 0"),
        ({"kind": "cosine"}, "unknown grid 'cosine'"),
        ({"sigma_min": 3.0, "sigma_max": 2.0}, "0 < sigma_min < sigma_max"),
        ({"sigma_min": 0.0}, "0 < sigma_min < sigma_max"),
        ({"t_min": 0.0}, "takes sigma_max and sigma_min"),
        ({"kind": "uniform_t", "sigma_min": 0.1}, "takes t_max and t_min"),
        ({"schedule": FlowLinearSchedule()}, "sigma_max < inf"),
        (
            {"schedule": DISCRETE, "sigma_max": 200.0},
            r"holds s/a from 0\.0387\d+ to 8\d\.\d+: take sigma_min and sigma_max from there",
        ),
        ({"schedule": DISCRETE, "sigma_min": 0.002}, "take sigma_min and sigma_max from there"),
    ],
)
def test_bad_limits_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_grid(**({"schedule": EDMSchedule(), "steps": 3} | arguments))


def test_points_must_go_from_noise_to_data():
    t, a, s = torch.tensor([1.0, 2.0]), torch.tensor([0.8, 0.6]), torch.tensor([0.6, 0.8])
    with pytest.raises(ValueError, match=r"N = 1 steps does not rise strictly in log\(a/s\) at the times \[1.0, 2.0\]"):
        Grid(t, a, s)
    assert Grid(t.flip(0), a.flip(0), s.flip(0)).steps == 1
    with pytest.raises(ValueError, match="points of t, a and s"):
        Grid(t, a, s[:1])
    with pytest.raises(ValueError, match="at least 0"):
        Grid(t, -a, s)


def test_a_grid_without_middle_is_refused():
    grid = make_grid(FlowLinearSchedule(), 2, "uniform_t")
    with pytest.raises(ValueError, match="no middle"):
        refined(grid, 2)
    with pytest.raises(ValueError, match="need its schedule"):
        refined(Grid(grid.t, grid.a, grid.s), 2)
