import pytest
import torch

from lightning_modules.r2r2.td7_networks import TD7Actor, TD7Critics, TD7Encoder, avg_l1_norm


def test_the_mean_absolute_value_is_one():
    x = torch.randn(5, 7, dtype=torch.float64)
    assert avg_l1_norm(x).abs().mean(dim=-1) == pytest.approx(torch.ones(5))
    assert torch.equal(avg_l1_norm(torch.tensor([1.0, -2.0, 3.0])), torch.tensor([0.5, -1.0, 1.5]))


@pytest.mark.parametrize("scale", [3.0, -0.2])
def test_only_the_sign_of_a_scale_remains(scale: float):
    x = torch.randn(5, 7, dtype=torch.float64)
    torch.testing.assert_close(avg_l1_norm(scale * x), (1 if scale > 0 else -1) * avg_l1_norm(x))


def test_zero_stays_zero_with_a_finite_gradient():
    x = torch.zeros(2, 3, requires_grad=True)
    y = avg_l1_norm(x)
    y.sum().backward()
    assert torch.equal(y, torch.zeros(2, 3))
    assert x.grad.isfinite().all()


def test_embeddings_of_states_are_normalised_and_those_of_pairs_are_not():
    encoder = TD7Encoder(3, 2, latent_dim=6, hidden=16)
    z = encoder.zs(torch.randn(5, 3))
    assert z.abs().mean(dim=-1).tolist() == pytest.approx([1.0] * 5)
    assert not torch.allclose(encoder.zsa(z, torch.rand(5, 2)).abs().mean(dim=-1), torch.ones(5), atol=1e-2)


def test_observations_enter_actor_and_critics_by_their_direction():
    actor, critics = TD7Actor(3, 2, latent_dim=6, hidden=16), TD7Critics(3, 2, latent_dim=6, hidden=16)
    for network in (actor, critics):
        torch.nn.init.zeros_(network.read.bias)
    obs, action, zsa, zs = (torch.randn(5, size) for size in (3, 2, 6, 6))
    torch.testing.assert_close(actor(obs, zs), actor(4 * obs, zs))
    torch.testing.assert_close(critics(obs, action, zsa, zs), critics(4 * obs, 4 * action, zsa, zs))
    assert not torch.allclose(critics(obs, action, zsa, zs), critics(obs, action, zsa, 4 * zs))
    assert not torch.allclose(*critics(obs, action, zsa, zs))
    assert actor(100 * obs, 100 * zs).abs().max() <= 1
