import math

import pytest
import torch
from torch import Tensor, nn

from lightning_modules.r2r2.hypersphere import Embedder, HyperDense, LERPBlock, Scaler, hyper_weights, l2_normalise, renormalise
from lightning_modules.r2r2.simba_networks import LatentModel, SimbaActor, SimbaCritics, dense


def rows(*modules: nn.Module) -> Tensor:
    """Lengths of all units' incoming weights."""
    return torch.cat([weight.norm(dim=-1).flatten() for weight in hyper_weights(*modules)])


def test_normalising_by_hand():
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0]], requires_grad=True)
    l2_normalise(x).sum().backward()
    assert l2_normalise(x).tolist() == [[pytest.approx(0.6), pytest.approx(0.8)], [0.0, 0.0]]
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("members", [None, 2])
@pytest.mark.parametrize("network", [lambda j: Embedder(3, 8, j), lambda j: LERPBlock(3, 2, j)])
def test_outputs_have_length_one(network, members: int | None):
    x = torch.randn(*([2] if members else []), 50, 3) * 100
    y = network(members)(x)
    assert y.norm(dim=-1).flatten().tolist() == pytest.approx([1.0] * y[..., 0].numel(), abs=1e-5)


def test_the_embedder_tells_inputs_of_different_length_apart():
    embedder = Embedder(3, 8)
    x = torch.randn(1, 3)
    assert (embedder(x) - embedder(2 * x)).norm() > 0.05
    expected = l2_normalise(math.sqrt(2 / 8) * l2_normalise(torch.cat([x, torch.full((1, 1), 3.0)], 1)) @ embedder.dense.weight.T)
    torch.testing.assert_close(embedder(x), expected)


def test_members_are_layers_side_by_side_and_differ():
    torch.manual_seed(0)
    both, x = LERPBlock(6, 1, members=2), torch.randn(2, 5, 6)
    for j in range(2):
        single = LERPBlock(6, 1)
        for own, stacked in zip(single.parameters(), both.parameters(), strict=True):
            own.data.copy_(stacked[j].reshape(own.shape))
        torch.testing.assert_close(both(x)[j], single(x[j]))
    assert not torch.equal(both.inner.weight[0], both.inner.weight[1])


def test_a_scaler_starts_at_init_and_learns_at_its_scale():
    scaler = Scaler(4, init=0.5, scale=0.1)
    x = torch.randn(7, 4)
    torch.testing.assert_close(scaler(x), 0.5 * x)
    assert scaler.weight.tolist() == pytest.approx([0.1] * 4)
    scaler.weight.data += 0.1
    torch.testing.assert_close(scaler(x), 1.0 * x)


def test_lerp_moves_one_part_of_the_way_at_the_start():
    block = LERPBlock(16, blocks=2)
    torch.testing.assert_close(block.alpha(torch.ones(16)), torch.full((16,), 1 / 3))
    assert block.alpha.weight[0].item() == pytest.approx(1 / 4)
    assert block.scaler.weight[0].item() == pytest.approx(math.sqrt(2 / 16) / 2)
    x = l2_normalise(torch.randn(5, 16))
    hidden = (math.sqrt(2 / 16) / 2 * x @ block.inner.weight.T).relu() + 1e-8
    y = l2_normalise(hidden @ block.outer.weight.T)
    torch.testing.assert_close(block(x), l2_normalise(2 / 3 * x + 1 / 3 * y))


def test_weights_begin_orthogonal():
    weight = HyperDense(8, 5).weight
    torch.testing.assert_close(weight @ weight.T, torch.eye(5), atol=1e-6, rtol=0)
    wide = HyperDense(3, 12).weight
    assert wide.norm(dim=1).tolist() == pytest.approx([1.0] * 12, abs=1e-6)


def test_renormalising_brings_all_rows_back_and_nothing_else():
    actor, critics = SimbaActor(3, 2, 8, 1, latent_dim=4), SimbaCritics(3, 2, 8, 2, 11, 2, latent_dim=4)
    assert len(hyper_weights(actor)) == 1 + 2 + 4
    assert len(hyper_weights(critics)) == 1 + 4 + 2
    for parameter in (*actor.parameters(), *critics.parameters()):
        parameter.data.mul_(3.0).add_(0.1)
    before = {name: value.clone() for name, value in critics.named_parameters()}
    assert rows(actor, critics).min() > 1.5
    renormalise(hyper_weights(actor, critics))
    assert rows(actor, critics).tolist() == pytest.approx([1.0] * len(rows(actor, critics)), abs=1e-5)
    kept = {name for name, value in critics.named_parameters() if torch.equal(value, before[name])}
    hyper = {f"{name}.weight" for name, layer in critics.named_modules() if isinstance(layer, HyperDense)}
    assert kept == before.keys() - hyper
    name = "trunk.embedder.dense.weight"
    torch.testing.assert_close(critics.get_parameter(name), before[name] / before[name].norm(dim=-1, keepdim=True))


@pytest.mark.parametrize("members", [None, 3])
def test_plain_layers_begin_as_lecun_says(members: int | None):
    torch.manual_seed(0)
    layer = dense(400, 300, members)
    assert layer.weight.std().item() == pytest.approx(400**-0.5, rel=0.02)
    assert layer.weight.abs().max().item() <= 2 * 400**-0.5 / 0.87962 + 1e-6
    assert layer.bias.abs().max() == 0


def test_latents_are_predicted_on_the_sphere():
    model, z, action = LatentModel(5, 2, 16), torch.randn(9, 5), torch.randn(9, 2)
    predicted = model(z, action)
    assert predicted.shape == (9, 5)
    assert predicted.norm(dim=1).tolist() == pytest.approx([1.0] * 9, abs=1e-5)
    assert not torch.allclose(predicted, model(z, -action))


def test_a_policy_of_bounded_deviation():
    actor = SimbaActor(3, 2, width=8)
    actor.log_std.bias.data = torch.tensor([-1e3, 1e3])
    mean, log_std = actor(torch.randn(4, 3))
    assert mean.shape == (4, 2)
    assert log_std[:, 0].tolist() == [-10.0] * 4
    assert log_std[:, 1].tolist() == [2.0] * 4


def test_critics_see_what_they_are_given():
    critics = SimbaCritics(3, 2, 8, 1, num_bins=7, members=2, latent_dim=4)
    obs, action, z, next_z = torch.randn(5, 3), torch.randn(5, 2), torch.randn(5, 4), torch.randn(5, 4)
    logits = critics(obs, action, z, next_z)
    assert logits.shape == (2, 5, 7)
    for other in ((-obs, action, z, next_z), (obs, -action, z, next_z), (obs, action, -z, next_z), (obs, action, z, -next_z)):
        assert not torch.allclose(critics(*other), logits)
