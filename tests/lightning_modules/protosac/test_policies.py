import math

import numpy as np
import pytest
import torch
from torch.distributions import (
    Categorical,
    Independent,
    MixtureSameFamily,
    Normal,
    TanhTransform,
    TransformedDistribution,
    kl_divergence,
)

from lightning_modules.protosac.policies import TanhGaussian, TanhMixture, tanh_log_jacobian

double = torch.float64


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=double)


def mixture(B: int, M: int, A: int) -> TanhMixture:
    return TanhMixture(randn(B, M).log_softmax(1), randn(B, M, A, seed=1), (0.5 * randn(B, M, A, seed=2)).exp())


def u_with_extremes(B: int, A: int) -> torch.Tensor:
    u = 2 * randn(B, A, seed=3)
    u[0], u[1] = 10.0, -10.0
    return u


def test_gaussian_density_is_that_of_torch():
    mean, std, u = randn(8, 3), randn(8, 3, seed=1).exp(), u_with_extremes(8, 3)
    reference = TransformedDistribution(Independent(Normal(mean, std), 1), TanhTransform())
    torch.testing.assert_close(TanhGaussian(mean, std).log_prob(u), reference.log_prob(u.tanh()), atol=1e-5, rtol=1e-5)


def test_mixture_density_is_that_of_torch():
    policy, u = mixture(8, 4, 3), u_with_extremes(8, 3)
    gaussians = Independent(Normal(policy.mean, policy.std), 1)
    reference = MixtureSameFamily(Categorical(logits=policy.log_weights), gaussians).log_prob(u)
    reference = reference - TanhTransform().log_abs_det_jacobian(u, u.tanh()).sum(dim=1)
    torch.testing.assert_close(policy.log_prob(u), reference, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["gaussian", "mixture"])
@pytest.mark.parametrize("value", [10.0, -10.0, 60.0])
def test_single_precision_stays_exact_and_finite_near_the_bounds(kind, value):
    mean, std = torch.zeros(1, 2, requires_grad=True), torch.ones(1, 2, requires_grad=True)
    policy = TanhGaussian(mean, std)
    if kind == "mixture":
        policy = TanhMixture(torch.tensor([[0.3, 0.7]]).log(), mean.unsqueeze(1).expand(1, 2, 2), std.unsqueeze(1).expand(1, 2, 2))
    u = torch.full((1, 2), value, requires_grad=True)
    log_prob = policy.log_prob(u)
    # log(1 - tanh^2 u) = log 4 - 2|u| to many digits out here
    exact = 2 * (-0.5 * value**2 - 0.5 * math.log(2 * math.pi) - (math.log(4) - 2 * abs(value)))
    assert log_prob.item() == pytest.approx(exact, rel=1e-6)
    for gradient in torch.autograd.grad(log_prob.sum(), (u, mean, std)):
        assert gradient.isfinite().all()


def test_jacobian_gradient_is_minus_two_tanh():
    u = torch.tensor([-30.0, -1.0, 0.0, 0.5, 30.0], dtype=double, requires_grad=True)
    (gradient,) = torch.autograd.grad(tanh_log_jacobian(u), u)
    torch.testing.assert_close(gradient, -2 * u.detach().tanh())


@pytest.mark.parametrize("kind", ["gaussian", "mixture"])
def test_density_integrates_to_one(kind):
    grid = torch.linspace(-1, 1, 200_003, dtype=double)[1:-1].unsqueeze(1)
    if kind == "gaussian":
        policy = TanhGaussian(torch.tensor([[0.3]], dtype=double), torch.tensor([[0.4]], dtype=double))
    else:
        means, stds = torch.tensor([[[-0.5], [0.6]]], dtype=double), torch.tensor([[[0.3], [0.4]]], dtype=double)
        policy = TanhMixture(torch.tensor([[0.2, 0.8]], dtype=double).log(), means, stds)
    density = policy.log_prob(grid.atanh()).exp()
    assert torch.trapezoid(density, grid.squeeze(1)).item() == pytest.approx(1, abs=1e-6)


def test_mixture_moments():
    w = torch.tensor([0.2, 0.5, 0.3], dtype=double)
    mu, sigma = torch.tensor([-0.8, 0.1, 1.0], dtype=double), torch.tensor([0.2, 0.5, 0.3], dtype=double)
    mean = (w * mu).sum()
    variance = (w * (sigma**2 + mu**2)).sum() - mean**2
    policy = TanhMixture(w.log().expand(200_000, 3), mu[None, :, None], sigma[None, :, None])
    actions, log_prob = policy.sample(generator())
    u = actions.atanh().squeeze(1)
    assert u.mean().item() == pytest.approx(mean.item(), abs=4 * (variance / 2e5).sqrt().item())
    assert u.var().item() == pytest.approx(variance.item(), rel=0.01)
    assert (w * sigma).sum() ** 2 <= variance  # the blend is never broader
    torch.testing.assert_close(log_prob, policy.log_prob(actions.atanh()))


def test_gaussian_moments_and_its_density_of_what_it_drew():
    policy = TanhGaussian(torch.full((200_000, 1), 0.4, dtype=double), torch.full((200_000, 1), 0.7, dtype=double))
    actions, log_prob = policy.sample(generator())
    u = actions.atanh()
    assert u.mean().item() == pytest.approx(0.4, abs=0.007)
    assert u.std().item() == pytest.approx(0.7, abs=0.005)
    torch.testing.assert_close(log_prob, policy.log_prob(u))
    samples = policy.weighted_samples(generator())
    assert torch.equal(samples.actions.squeeze(1), actions)
    assert torch.equal(samples.expectation(samples.log_prob), log_prob)


def test_modes():
    assert TanhGaussian(torch.tensor([[0.5, -1.0]]), torch.ones(1, 2)).mode().tolist() == [pytest.approx(np.tanh([0.5, -1.0]))]
    log_weights = torch.tensor([[0.2, 0.8], [0.9, 0.1]]).log()
    means = torch.tensor([[[0.5], [-1.0]]])
    assert TanhMixture(log_weights, means, torch.ones_like(means)).mode().tolist() == [
        [pytest.approx(np.tanh(-1.0))],
        [pytest.approx(np.tanh(0.5))],
    ]


def test_weighted_samples_of_a_mixture_weigh_the_whole_policys_density():
    policy = mixture(6, 4, 2)
    samples = policy.weighted_samples(generator())
    assert samples.actions.shape == (6, 4, 2)
    torch.testing.assert_close(samples.weights.sum(dim=1), torch.ones(6, dtype=double))
    for k in range(4):
        torch.testing.assert_close(samples.log_prob[:, k], policy.log_prob(samples.actions[:, k].atanh()))


def shared_mixture(B: int) -> tuple[list[torch.Tensor], TanhMixture]:
    leaves = [torch.tensor(x, dtype=double, requires_grad=True) for x in ([0.3, -0.4, 0.1], [-0.7, 0.2, 0.9], [-0.5, -1.0, -0.2])]
    logits, mu, log_sigma = leaves
    return leaves, TanhMixture(logits.log_softmax(0).expand(B, 3), mu[None, :, None], log_sigma.exp()[None, :, None])


def quadrature_gradients(alpha: float) -> list[torch.Tensor]:
    """Exact gradients of sum_k w_k E[alpha log pi - Q], Q = -(a - 0.3)^2, by 80 Gauss-Hermite nodes for each component."""
    nodes, node_weights = (torch.as_tensor(x, dtype=double) for x in np.polynomial.hermite_e.hermegauss(80))
    leaves, policy = shared_mixture(80)
    u = policy.mean + policy.std * nodes[:, None, None]  # [80, 3, 1]
    log_prob = torch.stack([policy.log_prob(u[:, k]) for k in range(3)], dim=1)
    values = alpha * log_prob + (u.squeeze(-1).tanh() - 0.3) ** 2
    inner = (node_weights[:, None] / math.sqrt(2 * math.pi) * values).sum(dim=0)
    return list(torch.autograd.grad((policy.log_weights[0].exp() * inner).sum(), leaves))


@pytest.mark.parametrize("alpha", [0.0, 0.2])
def test_marginalised_gradient_is_unbiased(alpha):
    leaves, policy = shared_mixture(200_000)
    samples = policy.weighted_samples(generator())
    q = -((samples.actions.squeeze(-1) - 0.3) ** 2)
    loss = samples.expectation(alpha * samples.log_prob - q).mean()
    for estimated, exact in zip(torch.autograd.grad(loss, leaves), quadrature_gradients(alpha), strict=True):
        torch.testing.assert_close(estimated, exact, atol=2e-3, rtol=0)


def test_gradient_in_the_weights_is_the_difference_of_expected_values():
    # dJ/dlogit_k = w_k (J_k - J) with J_k = E[-Q] of component k
    leaves, policy = shared_mixture(200_000)
    samples = policy.weighted_samples(generator())
    values = (samples.actions.squeeze(-1) - 0.3) ** 2
    (gradient,) = torch.autograd.grad(samples.expectation(values).mean(), leaves[:1])
    w, each = policy.log_weights[0].exp().detach(), values.detach().mean(dim=0)
    torch.testing.assert_close(gradient, w * (each - (w * each).sum()))
    assert gradient.abs().max() > 0.05  # a path through drawn components alone would give 0


def test_hard_samples_carry_no_gradient():
    _, policy = shared_mixture(5)
    actions, log_prob = policy.sample(generator())
    assert not actions.requires_grad
    assert not log_prob.requires_grad


def test_gaussian_divergence_is_that_of_torch():
    p, q = (TanhGaussian(randn(5, 3, seed=s), randn(5, 3, seed=s + 1).exp()) for s in (0, 2))
    reference = kl_divergence(Independent(Normal(p.mean, p.std), 1), Independent(Normal(q.mean, q.std), 1))
    torch.testing.assert_close(p.kl(q), reference)


def test_mixture_divergence():
    policy = mixture(4, 3, 2)
    assert policy.kl(policy, generator()).abs().max() == 0
    one, other = torch.tensor([[[0.0]]], dtype=double), torch.tensor([[[0.5]]], dtype=double)
    certain, std = torch.zeros(100_000, 1, dtype=double), torch.ones(1, 1, 1, dtype=double)
    estimate = TanhMixture(certain, one, std).kl(TanhMixture(certain, other, std), generator())
    assert estimate.mean().item() == pytest.approx(0.125, abs=0.006)


def test_generators_decide_every_draw():
    for policy in (mixture(4, 3, 2), TanhGaussian(randn(4, 2), randn(4, 2, seed=1).exp())):
        state = torch.get_rng_state()
        first, again, another = (policy.sample(generator(s))[0] for s in (0, 0, 1))
        policy.weighted_samples(generator())
        assert torch.equal(first, again)
        assert not torch.equal(first, another)
        assert torch.equal(torch.get_rng_state(), state)
