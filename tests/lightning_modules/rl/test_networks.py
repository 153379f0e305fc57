import copy

import pytest
import torch
from torch import nn
from torch.distributions import Independent, Normal, TransformedDistribution
from torch.distributions.transforms import TanhTransform

from lightning_modules.rl.networks import CriticEnsemble, frozen, mlp, move_towards
from lightning_modules.rl.squashed_gaussian import GaussianActor, squashed_log_prob, squashed_sample, tanh_log_jacobian


def test_an_ensemble_is_its_members_side_by_side():
    torch.manual_seed(0)
    ensemble = CriticEnsemble(3, 2, hidden=(5, 4), members=2).double()
    obs, action = torch.randn(7, 3, dtype=torch.float64), torch.randn(7, 2, dtype=torch.float64)
    for j in range(2):
        single = mlp([5, 5, 4, 1]).double()
        for layer, stacked in zip(single[::2], ensemble.layers[::2], strict=True):
            layer.weight.data, layer.bias.data = stacked.weight[j].t(), stacked.bias[j, 0]
        assert torch.allclose(ensemble(obs, action)[j], single(torch.cat([obs, action], dim=1))[:, 0], atol=1e-12)


def test_each_member_starts_like_a_linear_layer():
    torch.manual_seed(0)
    first = CriticEnsemble(10, 6, hidden=(64,), members=4).layers[0].weight
    bound = 16**-0.5
    assert first.abs().max() <= bound
    assert first.std(dim=(1, 2)).tolist() == pytest.approx([bound / 3**0.5] * 4, rel=0.1)
    assert not torch.equal(first[0], first[1])


def test_log_density_equals_that_of_torch():
    torch.manual_seed(0)
    u, mean, log_std = torch.randn(3, 50, 2, dtype=torch.float64)
    expected = TransformedDistribution(Independent(Normal(mean, log_std.exp()), 1), TanhTransform(cache_size=1))
    assert torch.allclose(squashed_log_prob(u, mean, log_std.exp()), expected.log_prob(u.tanh()), atol=1e-5)


def test_the_jacobian_is_finite_and_right_where_the_tangent_is_flat():
    u = torch.tensor([[-20.0], [-1.0], [0.0], [1.0], [20.0]])
    assert torch.allclose(tanh_log_jacobian(u)[1:4], (1 - u[1:4, 0].tanh().square()).log(), atol=1e-6)
    # 1 - tanh² u tends to 4 exp(-2 |u|)
    assert tanh_log_jacobian(u)[[0, 4]].tolist() == pytest.approx([1.3862944 - 40.0] * 2, rel=1e-6)


def test_sampled_actions_carry_their_own_density_and_gradients():
    torch.manual_seed(0)
    actor = GaussianActor(3, 2, hidden=(8,))
    obs = torch.randn(6, 3)
    action, log_prob = actor.sample(obs)
    mean, log_std = actor(obs)
    assert torch.allclose(log_prob, squashed_log_prob(action.atanh(), mean, log_std.exp()), atol=1e-3)
    (action.sum() + log_prob.sum()).backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in actor.parameters())
    assert torch.equal(actor.mode(obs), mean.tanh())


def test_targets_move_by_the_rate():
    source, target = nn.Linear(2, 2), nn.Linear(2, 2)
    before = copy.deepcopy(target)
    move_towards(list(target.parameters()), list(source.parameters()), 0.25)
    for moved, old, goal in zip(target.parameters(), before.parameters(), source.parameters(), strict=True):
        assert torch.allclose(moved, 0.75 * old + 0.25 * goal)


def test_a_density_in_terms_of_the_noise_is_the_same():
    g = torch.Generator().manual_seed(0)
    mean, log_std, noise = torch.randn(3, 50, 4, generator=g, dtype=torch.float64)
    action, log_prob = squashed_sample(mean, log_std, noise)
    u = mean + log_std.exp() * noise
    torch.testing.assert_close(action, u.tanh())
    torch.testing.assert_close(log_prob, squashed_log_prob(u, mean, log_std.exp()), rtol=1e-12, atol=1e-12)


def test_a_density_is_finite_at_the_bounds_and_has_gradients():
    mean = torch.tensor([[-60.0], [0.0], [60.0]], requires_grad=True)
    log_std = torch.full((3, 1), 2.0, requires_grad=True)
    action, log_prob = squashed_sample(mean, log_std, torch.tensor([[-3.0], [0.0], [3.0]]))
    assert action.tolist() == [[-1.0], [0.0], [1.0]]
    assert log_prob.isfinite().all()
    log_prob.sum().backward()
    assert mean.grad.isfinite().all()
    assert log_std.grad.isfinite().all()


def test_frozen_parameters_get_no_gradient_and_thaw():
    layer = nn.Linear(2, 1)
    x = torch.ones(1, 2, requires_grad=True)
    with frozen(layer.parameters()):
        layer(x).sum().backward()
    assert layer.weight.grad is None
    assert torch.equal(x.grad, layer.weight)
    assert all(parameter.requires_grad for parameter in layer.parameters())
