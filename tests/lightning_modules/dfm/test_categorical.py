import pytest
import torch
from flow_laws import random_flow

from lightning_modules.dfm.solvers.categorical import draw, jump, jump_to_data, rates_away
from lightning_modules.dfm.solvers.tau_leaping import most_jumps, poisson
from lightning_modules.dfm.solvers.theta import ThetaSolver

WEIGHT = torch.tensor([[[0.0, 0.25, 0.0, 0.75, 0.0]]])


def drawn(uniform: float, weight: torch.Tensor = WEIGHT) -> int:
    return draw(weight.cumsum(dim=-1), torch.tensor([[uniform]], dtype=torch.float64)).item()


def test_values_without_weight_are_never_drawn():
    smallest, largest = 0.0, 1 - 2.0**-53
    assert [drawn(u) for u in (smallest, 0.2499, 0.25, 0.9, largest)] == [1, 1, 3, 3, 3]
    assert drawn(largest, WEIGHT / 3) == 3
    assert drawn(0.5, 0 * WEIGHT) == 4


def test_several_draws_at_once():
    uniform = torch.rand(1, 1, 1000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    several = draw(WEIGHT.cumsum(dim=-1), uniform)
    assert several.shape == (1, 1, 1000)
    assert several.flatten().tolist() == [drawn(u) for u in uniform.flatten().tolist()]


def test_staying_is_no_jump():
    cumulative, total = rates_away(WEIGHT, torch.tensor([[3]]))
    assert cumulative.flatten().tolist() == [0, 0.25, 0.25, 0.25, 0.25]
    assert total.item() == 0.25


def test_clocks_ring_within_the_exposure():
    x, uniform = torch.tensor([[3]]), torch.tensor([[0.5]], dtype=torch.float64)
    for clock, after in ((0.49, 1), (0.51, 3)):
        assert jump(x, WEIGHT, 2.0, torch.tensor([[clock]]).double(), uniform).item() == after
    for clock, after in ((1.99, 3), (2.01, 0)):
        assert jump_to_data(0 * x, WEIGHT, 2.0, torch.tensor([[clock]]).double(), uniform).item() == after
    assert jump(x, WEIGHT * 0, 1e9, torch.tensor([[1e-9]]).double(), uniform).item() == 3


def test_poisson_counts():
    mean = torch.tensor([0.0, 0.3, 2.0], dtype=torch.float64).unsqueeze(-1)
    uniform = torch.rand(3, 200_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    count = poisson(mean.expand(-1, 200_000), uniform, most_jumps(2.0)).double()
    assert (count[0] == 0).all()
    assert torch.allclose(count.mean(dim=1, keepdim=True), mean, atol=0.015)
    assert torch.allclose(count.var(dim=1, keepdim=True), mean, atol=0.03)
    exceeds = (
        1 - torch.distributions.Poisson(torch.tensor(2.0).double()).log_prob(torch.arange(most_jumps(2.0) + 1).double()).exp().sum()
    )
    assert abs(exceeds.item()) < 1e-12
    assert most_jumps(0.0) == 1


def test_rates_of_the_second_stage_by_hand():
    x, middle = torch.tensor([[0]]), torch.tensor([[1]])
    u, u_middle = torch.tensor([[[0.0, 3.0, 0.3]]]), torch.tensor([[[0.6, 0.0, 0.9]]])
    flow = random_flow("uniform", 3, 1)

    def stage(name: str, theta: float):
        solver = flow.solver(name, theta=theta)
        assert isinstance(solver, ThetaSolver)
        origin, rate, duration = solver.second_half(x, middle, u, u_middle, 0.4)
        return origin.item(), rate.flatten().tolist(), duration

    origin, rate, duration = stage("theta_trap", 0.25)
    assert (origin, duration) == (1, pytest.approx(0.3))
    assert rate == pytest.approx([1.6, 0.0, 8 / 3 * 0.9 - 5 / 3 * 0.3])
    origin, rate, duration = stage("theta_rk2", 0.8)
    assert (origin, duration) == (0, 0.4)
    assert rate == pytest.approx([0.375, 1.125, 0.375 * 0.3 + 0.625 * 0.9])
    assert stage("theta_rk2", 0.5)[1] == pytest.approx([0.6, 0.0, 0.9])
