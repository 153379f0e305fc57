import pytest
import torch

from lightning_modules.f_dpm_solver.denoiser import Denoiser, data_prediction
from lightning_modules.f_dpm_solver.gaussian_mixture import ring_mixture
from lightning_modules.f_dpm_solver.grids import make_grid
from lightning_modules.f_dpm_solver.samplers import get_sampler
from lightning_modules.f_dpm_solver.schedules import CosineVPSchedule, EDMSchedule, FlowLinearSchedule, levels_like

COSINE = CosineVPSchedule()


def noise(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def prediction_of(kind, schedule):
    """A network of the given kind that knows the best data prediction of a mixture."""
    oracle = ring_mixture(schedule)

    def net(x, t_B):
        a, s = levels_like(schedule, t_B, x)
        data = oracle(x, t_B)
        epsilon = (x - a * data) / s
        return {"sample": data, "epsilon": epsilon, "v_prediction": a * epsilon - s * data, "flow_prediction": epsilon - data}[kind]

    return Denoiser(net, kind, schedule)


@pytest.mark.parametrize(
    ("schedule", "kinds"), [(COSINE, ["epsilon", "v_prediction"]), (FlowLinearSchedule(), ["flow_prediction"])]
)
def test_all_kinds_of_one_prediction_sample_the_same(schedule, kinds):
    x = noise(20, 2)
    grid = make_grid(schedule, 8, "log_snr", sigma_max=30, sigma_min=0.02)
    for name in ("ddim", "f_dpm", "dpmpp_2m"):
        expected = get_sampler(name).sample(prediction_of("sample", schedule), x, grid).x
        for kind in kinds:
            found = get_sampler(name).sample(prediction_of(kind, schedule), x, grid).x
            assert (found - expected).abs().max() < 1e-10


def test_conversions_by_hand():
    data, epsilon = torch.tensor([2.0]), torch.tensor([-1.0])
    x = 0.8 * data + 0.6 * epsilon
    assert data_prediction(epsilon, x, 0.8, 0.6, "epsilon").item() == pytest.approx(2)
    assert data_prediction(0.8 * epsilon - 0.6 * data, x, 0.8, 0.6, "v_prediction").item() == pytest.approx(2)
    x = 0.75 * data + 0.25 * epsilon
    assert data_prediction(epsilon - data, x, 0.75, 0.25, "flow_prediction").item() == pytest.approx(2)


def test_the_network_gets_a_time_for_each_sample_and_calls_are_counted():
    seen = []

    def net(x, t_B):
        seen.append((x.clone(), t_B))
        return x

    denoiser = Denoiser(net, "sample", EDMSchedule(), edm_coordinates=True)
    x = noise(3, 2).float()
    denoiser(x, 0.75)
    denoiser(x, torch.tensor(2.0))
    assert denoiser.calls == 2
    assert denoiser.times == [0.75, 2.0]
    assert seen[0][1].tolist() == [0.75] * 3
    assert torch.allclose(seen[0][0], x / 0.8)
    assert seen[0][1].dtype == torch.float32


def test_guidance_mixes_what_the_network_predicts_in_one_call():
    sizes = []

    def net(x, t_B, condition_B):
        sizes.append((len(x), len(t_B)))
        return x + condition_B[:, None]

    x = noise(3, 2)
    condition, null = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    found = Denoiser(net, "epsilon", COSINE, 2.5, condition, null)(x, 0.5)
    half = 0.5**0.5
    expected = (x - half * (x + 2.5 * condition[:, None])) / half
    assert torch.allclose(found, expected, atol=1e-12)
    assert sizes == [(6, 6)]
    plain = Denoiser(net, "epsilon", COSINE, condition=condition)(x, 0.5)
    assert torch.allclose(plain, (x - half * (x + condition[:, None])) / half, atol=1e-12)
    assert sizes[1] == (3, 3)


def test_clamp_and_precision_of_the_network():
    def net(x, t_B):
        assert x.dtype == torch.bfloat16
        assert t_B.dtype == torch.float32
        return 3 * torch.ones_like(x)

    data = Denoiser(net, "sample", COSINE, net_dtype=torch.bfloat16, clamp=(-1, 1))(noise(2, 2), 0.5)
    assert data.dtype == torch.float64
    assert (data == 1).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prediction_type": "score"}, "unknown prediction type 'score'"),
        ({"prediction_type": "v_prediction", "schedule": FlowLinearSchedule()}, "v_prediction needs a schedule"),
        ({"prediction_type": "flow_prediction"}, "flow_prediction needs a schedule"),
        ({"guidance_scale": 2.0, "condition": torch.zeros(1)}, "needs a condition and a null_condition"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Denoiser(**({"net": torch.nn.Identity(), "prediction_type": "epsilon", "schedule": COSINE} | arguments))


def test_noise_says_nothing_where_there_is_no_signal():
    with pytest.raises(ValueError, match="alpha = 0"):
        Denoiser(lambda x, t_B: x, "epsilon", COSINE)(noise(1, 2), 1.0)
    with pytest.raises(ValueError, match="unknown prediction type"):
        data_prediction(noise(1), noise(1), 0.8, 0.6, "score")
