import math
import warnings

import pytest
import torch
from scalar_gaussian import ORACLE, START, end, even_grid, exact_end, slope

from lightning_modules.f_dpm_solver.f_dpm import FDPM, first_lookahead_scale
from lightning_modules.f_dpm_solver.gaussian_mixture import PointMassOracle, ring_mixture
from lightning_modules.f_dpm_solver.grids import Grid, make_grid
from lightning_modules.f_dpm_solver.samplers import get_sampler
from lightning_modules.f_dpm_solver.schedules import CosineVPSchedule, EDMSchedule, FlowLinearSchedule

pytestmark = pytest.mark.filterwarnings("ignore:F-DPM of order")

TABLE = {
    1: (0.3724764080, 0.1514080016, 0.1514080016, 0.1514080016, 0.3724764080),
    2: (0.5701907368, 0.8617657419, 0.9653460155, 0.9653460155, 0.6690479012),
    5: (0.6757877172, 0.8266420796, 0.8531737206, 0.8698518104, 0.7888751546),
    10: (0.7283881945, 0.8277293431, 0.8394606025, 0.8418113839, 0.7943283054),
}
STEPS = (40, 80, 160, 320)


def noise(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def no_network(x, t):
    raise AssertionError(f"called at {t}")


@pytest.mark.parametrize("steps", TABLE)
def test_scalar_gaussian_table(steps):
    samplers = [("ddim", {}), *(("f_dpm", {"order": order}) for order in (1, 2, 3)), ("dpmpp_2m", {})]
    found = [end(name, steps, **options) for name, options in samplers]
    assert found == pytest.approx(TABLE[steps], abs=1e-9)


def test_one_step_by_hand():
    assert exact_end() == pytest.approx(0.7883291297, abs=1e-9)
    grid = even_grid(1)
    assert first_lookahead_scale(grid) == pytest.approx(0.0997510102, abs=1e-10)
    output = FDPM().sample(ORACLE, START, grid)
    assert output.data_prediction.item() == pytest.approx(0.1018570506, abs=1e-10)
    a, s = grid.numbers.a, grid.numbers.s
    by_hand = s[1] / s[0] + (a[1] - a[0] * s[1] / s[0]) * output.data_prediction.item()
    assert output.x.item() == pytest.approx(by_hand, abs=1e-12)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_a_point_mass_is_exact(order, steps):
    x, point = noise(5, 3), noise(3, seed=1)
    grid = make_grid(EDMSchedule(), steps)
    found = FDPM(order).sample(PointMassOracle(point), x, grid).x
    (a_0, a_N), (s_0, s_N) = grid.a[[0, -1]].tolist(), grid.s[[0, -1]].tolist()
    assert (found - (s_N / s_0 * x + (a_N - a_0 * s_N / s_0) * point)).abs().max() < 1e-12


def test_leading_errors_are_the_predicted_ones_with_opposite_signs():
    a, s = even_grid(1).numbers.a, even_grid(1).numbers.s
    variance = [0.25 * signal**2 + level**2 for signal, level in zip(a, s, strict=True)]
    z = (1 - 0.3 * a[0]) / math.sqrt(variance[0])
    constant = 0.25 / 4 * z * math.sqrt(variance[1]) * (a[1] ** 2 / variance[1] - a[0] ** 2 / variance[0])
    assert constant == pytest.approx(0.1206615171, abs=1e-9)
    predicted = constant * math.log(200) / 320
    assert predicted == pytest.approx(1.99782e-3, abs=1e-8)
    assert exact_end() - end("ddim", 320) == pytest.approx(predicted, rel=0.02)
    assert exact_end() - end("f_dpm", 320) == pytest.approx(-predicted, rel=0.03)


def test_the_order_is_one_and_that_of_the_mean_with_ddim_is_two():
    exact = exact_end()
    ddim = [end("ddim", steps) for steps in STEPS]
    assert slope([exact - x for x in ddim]) == pytest.approx(1, abs=0.05)
    for order in (1, 2, 3):
        ours = [end("f_dpm", steps, order=order) for steps in STEPS]
        assert slope([exact - x for x in ours]) == pytest.approx(1, abs=0.05)
        means = [exact - (x + y) / 2 for x, y in zip(ddim, ours, strict=True)]
        assert slope(means) == pytest.approx(2, abs=0.1)
        if order == 1:
            assert means == pytest.approx([7.53e-4, 1.93e-4, 4.88e-5, 1.23e-5], rel=0.005)


def test_the_ideal_rule_is_close_to_second_order():
    ours, ideal = ([end(name, steps) for steps in STEPS] for name in ("f_dpm", "forward_ideal"))
    gaps = [y - x for x, y in zip(ours, ideal, strict=True)]
    assert [abs(gap) for gap in gaps] == pytest.approx([2.03e-3, 5.16e-4, 1.30e-4, 3.27e-5], rel=0.005)
    assert slope(gaps) == pytest.approx(2, abs=0.1)
    errors = [x - exact_end() for x in ideal]
    assert errors == pytest.approx([1.625e-2, 8.06e-3, 4.01e-3, 2.00e-3], rel=0.005)


def test_the_network_is_called_at_the_later_points_only():
    times = []

    def denoiser(x, t):
        times.append(t)
        return ORACLE(x, t)

    grid = even_grid(5)
    assert FDPM(2).sample(denoiser, START, grid).nfe == 5
    assert times == grid.t[1:].tolist()
    times.clear()
    assert FDPM(2, first_eps="model").sample(denoiser, START, grid).nfe == 6
    assert times == grid.t.tolist()
    assert FDPM(first_eps="model").steps_for(6) == 5


def test_a_start_with_the_networks_own_noise_predicts_it():
    grid = even_grid(1)
    a, s = grid.numbers.a, grid.numbers.s
    data = ORACLE(START, grid.numbers.t[0])
    lookahead = s[1] / s[0] * START + (a[1] - a[0] * s[1] / s[0]) * data
    by_hand = s[1] / s[0] * START + (a[1] - a[0] * s[1] / s[0]) * ORACLE(lookahead, grid.numbers.t[1])
    assert FDPM(first_eps="model").sample(ORACLE, START, grid).x.item() == pytest.approx(by_hand.item(), abs=1e-12)


def test_an_order_above_the_steps_is_that_of_the_steps():
    x, grid = noise(4, 2), make_grid(EDMSchedule(), 3)
    mixture = ring_mixture(EDMSchedule())
    three, nine = (FDPM(order).sample(mixture, x, grid).x for order in (3, 9))
    assert torch.equal(three, nine)
    assert not torch.equal(three, FDPM(2).sample(mixture, x, grid).x)
    assert FDPM(5).sample(mixture, x, make_grid(EDMSchedule(), 1)).x.isfinite().all()


def test_the_last_data_prediction_can_be_the_sample():
    state, data = (FDPM(final=final).sample(ORACLE, START, even_grid(4)) for final in ("state", "data"))
    assert torch.equal(data.x, state.data_prediction)
    assert not torch.equal(data.x, state.x)
    assert data.nfe == 4


def test_only_the_last_lookahead_falls_to_order_one():
    grid = even_grid(10)
    all_options = {"order": 3}, {"order": 3, "lower_order_final": True}, {"order": 1}
    high, safe, low = (FDPM(**options).lookaheads(grid) for options in all_options)
    assert [safe[i] == high[i] for i in range(10)] == [True] * 9 + [False]
    assert safe[9] == low[9]


@pytest.mark.parametrize("order", [1, 3])
@pytest.mark.parametrize("schedule", [FlowLinearSchedule(), CosineVPSchedule()])
def test_a_start_without_signal_is_the_limit_of_little_signal(schedule, order):
    mixture, x = ring_mixture(schedule), noise(10, 2)
    pure, almost = (make_grid(schedule, 6, "uniform_t", t_max=t, t_min=0.05) for t in (1.0, 1 - 1e-7))
    assert first_lookahead_scale(pure) == pytest.approx(pure.numbers.s[1], abs=1e-15)
    assert first_lookahead_scale(almost) == pytest.approx(first_lookahead_scale(pure), rel=1e-5)
    found = FDPM(order).sample(mixture, x, pure).x
    assert found.isfinite().all()
    if order == 1:
        assert (FDPM().sample(mixture, x, almost).x - found).abs().max() < 1e-4
    with pytest.raises(ValueError, match="first_eps='model' needs signal"):
        FDPM(order, first_eps="model").sample(mixture, x, pure)


def test_high_order_with_few_steps_warns():
    with pytest.warns(UserWarning, match=r"order 2 may diverge with N = 8 steps"):
        FDPM(2).sample(ORACLE, START, even_grid(8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FDPM(2).sample(ORACLE, START, even_grid(9))
        FDPM(1).sample(ORACLE, START, even_grid(2))
        FDPM(3).sample(ORACLE, START, even_grid(1))


def test_an_end_without_noise_is_refused():
    grid = Grid(torch.tensor([1.0, 0.0]), torch.tensor([0.6, 1.0]), torch.tensor([0.8, 0.0]))
    with pytest.raises(ValueError, match="evaluates the network at the last grid point.*sigma_min > 0"):
        FDPM().sample(no_network, START, grid)


@pytest.mark.parametrize("options", [{"order": 0}, {"final": "noise"}, {"first_eps": "zero"}])
def test_bad_options_are_refused(options):
    with pytest.raises(ValueError, match=f"{next(iter(options)).replace('_', '.')}"):
        get_sampler("f_dpm", **options)
