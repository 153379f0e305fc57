import math

import pytest
import torch

from lightning_modules.generative.rectified_flow import euler_sample, flow_loss, guided, interpolate, logit_normal_mass

GENERATOR = torch.Generator().manual_seed(0)
CLEAN, NOISE = (torch.randn(3, 2, 4, 4, generator=GENERATOR, dtype=torch.float64) for _ in range(2))


def test_the_path_and_its_velocity():
    t = torch.tensor([0.0, 0.25, 1.0], dtype=torch.float64, requires_grad=True)
    point, velocity = interpolate(CLEAN, NOISE, t)
    assert torch.equal(point[0], CLEAN[0])
    assert torch.allclose(point[1], 0.75 * CLEAN[1] + 0.25 * NOISE[1])
    assert torch.equal(point[2], NOISE[2])
    (slope,) = torch.autograd.grad(point[:, 0, 0, 0].sum(), t)
    assert torch.allclose(slope, velocity[:, 0, 0, 0])


def test_the_loss_is_that_of_each_sample():
    target = NOISE.clone()
    target[1] += 2
    assert flow_loss(NOISE, target).tolist() == pytest.approx([0, 4, 0])


def test_training_times():
    edges = torch.linspace(0, 1, 11, dtype=torch.float64)
    mass = logit_normal_mass(edges)
    assert mass.sum().item() == pytest.approx(1)
    assert mass[2].item() == pytest.approx(
        0.5 * (math.erf(math.log(0.3 / 0.7) / math.sqrt(2)) - math.erf(math.log(0.2 / 0.8) / math.sqrt(2)))
    )
    times = torch.randn(200_000, generator=GENERATOR).sigmoid()
    assert torch.allclose(torch.histc(times, 10, 0, 1) / 200_000, mass.float(), atol=0.004)


@pytest.mark.parametrize("steps", [1, 3, 10])
def test_euler_on_straight_paths_is_exact(steps: int):
    _, velocity = interpolate(CLEAN, NOISE, torch.zeros(3, dtype=torch.float64))
    assert torch.allclose(euler_sample(lambda x, t: velocity, NOISE, steps), CLEAN)


def test_euler_on_a_linear_field():
    seen: list[float] = []

    def field(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        seen.append(t[2].item())
        return 0.5 * x

    made = euler_sample(field, NOISE, 4)
    assert torch.allclose(made, NOISE * (1 - 0.5 / 4) ** 4)
    assert seen == [1.0, 0.75, 0.5, 0.25]
    errors = [(euler_sample(lambda x, t: 0.5 * x, NOISE, n) - NOISE * math.exp(-0.5)).abs().max() for n in (50, 100)]
    assert (errors[0] / errors[1]).item() == pytest.approx(2, rel=0.02), "first order"
    with pytest.raises(ValueError, match="steps=0"):
        euler_sample(field, NOISE, 0)


def test_guidance_is_linear():
    assert torch.equal(guided(CLEAN, NOISE, 0.0), NOISE)
    assert torch.allclose(guided(CLEAN, NOISE, 1.0), CLEAN)
    assert torch.allclose(guided(CLEAN, NOISE, 3.0), 3 * CLEAN - 2 * NOISE)
