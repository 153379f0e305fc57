import pytest
import torch

from lightning_modules.f_dpm_solver.gaussian_mixture import (
    GaussianMixtureOracle,
    GaussianOracle,
    PointMassOracle,
    ring_mixture,
)
from lightning_modules.f_dpm_solver.grids import make_grid
from lightning_modules.f_dpm_solver.reference import reference_solution
from lightning_modules.f_dpm_solver.schedules import CosineVPSchedule, EDMSchedule

EDM = EDMSchedule()


def noise(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def plane_gaussian(schedule=EDM):
    covariance = torch.tensor([[1.0, 0.6], [0.6, 0.5]], dtype=torch.float64)
    return GaussianOracle(torch.tensor([0.5, -1.0], dtype=torch.float64), covariance, schedule)


@pytest.mark.parametrize("t", [0.05, 0.6, 5.0])
def test_the_mixture_denoiser_is_tweedies_formula(t):
    mixture = GaussianMixtureOracle(
        torch.tensor([[1.0, 0.0], [-0.5, 0.8]]), torch.tensor([0.2, 0.5]), torch.tensor([1.0, 3.0]), EDM
    )
    a, s = EDM.alpha(t), EDM.sigma(t)
    x = noise(50, 2).requires_grad_()
    density = sum(
        w * torch.exp(-0.5 * (x - a * mu).square().sum(1) / v) / v
        for w, mu, v in zip((0.25, 0.75), mixture.means_Kd, a**2 * torch.tensor([0.04, 0.25]) + s**2, strict=True)
    )
    (score,) = torch.autograd.grad(density.log().sum(), x)
    assert torch.allclose(mixture(x, t), (x + s**2 * score) / a, atol=1e-6)


def test_each_sample_may_have_its_own_time():
    mixture, x = ring_mixture(CosineVPSchedule()), noise(3, 2)
    times = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    alone = torch.stack([mixture(x[i : i + 1], times[i].item())[0] for i in range(3)])
    assert torch.allclose(mixture(x, times), alone, atol=1e-12)
    gaussian = plane_gaussian()
    alone = torch.stack([gaussian(x[i : i + 1], times[i].item())[0] for i in range(3)])
    assert torch.allclose(gaussian(x, times), alone, atol=1e-12)


def test_the_ring_and_its_draws():
    ring = ring_mixture(EDM)
    assert ring.means_Kd[1].tolist() == pytest.approx([0.5, 0.75**0.5])
    drawn = ring.draw(20_000, torch.Generator().manual_seed(0))
    nearest = torch.cdist(drawn, ring.means_Kd).argmin(1)
    assert (nearest.bincount() / 20_000).tolist() == pytest.approx([0.1, 0.15, 0.2, 0.25, 0.1, 0.2], abs=0.01)
    assert (drawn - ring.means_Kd[nearest]).std().item() == pytest.approx(0.15, rel=0.02)
    assert ring_mixture(EDM, 4, weights=None).log_weights_K.exp().tolist() == pytest.approx([0.25] * 4)


def test_one_component_is_the_gaussian():
    mixture = GaussianMixtureOracle(torch.tensor([[0.5, -1.0]]), torch.tensor([0.7]), torch.ones(1), EDM)
    gaussian = GaussianOracle(torch.tensor([0.5, -1.0]), 0.7**2 * torch.eye(2), EDM)
    x = noise(10, 2)
    assert torch.allclose(mixture(x, 0.8), gaussian(x, 0.8), atol=1e-7)


def test_the_exact_flow_carries_the_marginals():
    gaussian, (start, end) = plane_gaussian(), (20.0, 0.1)
    a, s = EDM.alpha(end), EDM.sigma(end)
    covariance = torch.tensor([[1.0, 0.6], [0.6, 0.5]], dtype=torch.float64)
    zero = torch.zeros(1, 2, dtype=torch.float64)
    at_zero = gaussian.flow(zero, start, end)[0]
    matrix = torch.stack([gaussian.flow(zero + axis, start, end)[0] - at_zero for axis in torch.eye(2, dtype=torch.float64)], 1)
    a_0, s_0 = EDM.alpha(start), EDM.sigma(start)
    first = a_0**2 * covariance + s_0**2 * torch.eye(2, dtype=torch.float64)
    assert torch.allclose(matrix @ first @ matrix.T, a**2 * covariance + s**2 * torch.eye(2, dtype=torch.float64), atol=1e-12)
    mean = gaussian.flow(a_0 * gaussian.mean_d[None], start, end)[0]
    assert torch.allclose(mean, a * gaussian.mean_d, atol=1e-12)


def test_the_reference_is_the_exact_flow_to_fourth_order():
    gaussian, x = plane_gaussian(), noise(5, 2)
    grid = make_grid(EDM, 1, "log_snr", sigma_max=10.0, sigma_min=0.05)
    exact = gaussian.flow(x, 10.0, 0.05)
    errors = [(reference_solution(gaussian, x, grid, steps) - exact).abs().max().item() for steps in (50, 100, 400)]
    assert errors[2] < 1e-9
    assert errors[0] / errors[1] == pytest.approx(16, rel=0.2)
    assert reference_solution(gaussian, x.float(), grid, 5).dtype == torch.float64
    with pytest.raises(ValueError, match="at least one step"):
        reference_solution(gaussian, x, grid, 0)


def test_a_point_is_always_predicted():
    point = noise(3)
    assert torch.equal(PointMassOracle(point)(noise(2, 3), 1.0), point.expand(2, 3))


def test_bad_data_is_refused():
    with pytest.raises(ValueError, match=r"means \[K, d\]"):
        GaussianMixtureOracle(torch.zeros(3, 2), torch.ones(2), torch.ones(3), EDM)
    with pytest.raises(ValueError, match="weights > 0"):
        GaussianMixtureOracle(torch.zeros(2, 2), torch.ones(2), torch.tensor([1.0, 0.0]), EDM)
    with pytest.raises(ValueError, match="6 components need as many weights, got 2"):
        ring_mixture(EDM, weights=(0.5, 0.5))
    with pytest.raises(ValueError, match=r"covariance \[d, d\]"):
        GaussianOracle(torch.zeros(2), torch.ones(2), EDM)
    for matrix in ([[1.0, 0.5], [0.0, 1.0]], [[1.0, 2.0], [2.0, 1.0]]):
        with pytest.raises(ValueError, match="symmetric and positive semidefinite"):
            GaussianOracle(torch.zeros(2), torch.tensor(matrix), EDM)
