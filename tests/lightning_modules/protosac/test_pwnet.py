"""Prototype wrappers against a layer-by-layer calculation, PyTorch's own layers and values by hand."""

import math

import pytest
import torch
from torch import nn

from lightning_modules.protosac.pwnet import PWNet, SharedPWNet, TransformedSimilarity

LATENT, WIDTH, K = 4, 5, 3


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def reference_transformation(similarity: TransformedSimilarity, k: int) -> nn.Sequential:
    first, second = nn.Linear(LATENT, WIDTH), nn.Linear(WIDTH, WIDTH)
    for layer, stacked in ((first, similarity.first), (second, similarity.second)):
        layer.weight.data, layer.bias.data = stacked.weight[k].T.clone(), stacked.bias[k, 0].clone()
    return nn.Sequential(first, nn.Unflatten(1, (1, WIDTH)), nn.InstanceNorm1d(1), nn.Flatten(), nn.ReLU(), second)


def test_each_prototype_has_a_transformation_of_its_own():
    similarity, z = TransformedSimilarity(LATENT, K, WIDTH), torch.randn(6, LATENT)
    for k in range(K):
        transform = reference_transformation(similarity, k)
        distance = (transform(z) - transform(similarity.prototypes[k : k + 1])).square().sum(dim=1)
        assert torch.allclose(similarity(z)[:, k], ((distance + 1) / (distance + 1e-4)).log(), atol=1e-5)


def test_a_latent_is_most_similar_to_a_prototype_that_equals_it():
    similarity, z = TransformedSimilarity(LATENT, K, WIDTH), torch.randn(K, LATENT)
    similarity.prototypes.data.copy_(z)
    assert torch.allclose(similarity(z).diagonal(), torch.full((K,), math.log(1e4)), atol=1e-4)
    assert (similarity(z) < math.log(1e4) - 1).sum() == K * (K - 1)


def test_similarity_does_not_depend_on_the_batch():
    similarity, z = TransformedSimilarity(LATENT, K, WIDTH), torch.randn(6, LATENT)
    assert torch.allclose(similarity(z)[:1], similarity(z[:1]), atol=1e-6)


def test_the_action_is_linear_in_the_similarities_before_the_squashing():
    net, z = PWNet(LATENT, 2, K, WIDTH), torch.randn(6, LATENT)
    expected = net.similarity(z) @ net.head.weight.T + net.head.bias
    assert torch.allclose(net(z).atanh(), expected, atol=1e-4)


def test_slots_choose_softly_in_training_and_hard_in_evaluation():
    net = SharedPWNet(LATENT, 2, K, slots=4, width=WIDTH)
    soft = net.train().assignment()
    assert soft.shape == (2, 4, K)
    assert torch.allclose(soft.sum(dim=-1), torch.ones(2, 4))
    assert (soft.amax(dim=-1) < 0.99).any()
    assert not torch.equal(soft, net.assignment())
    hard = net.eval().assignment()
    assert torch.equal(hard, net.assignment())
    assert torch.equal(hard.sort(dim=-1).values, torch.tensor([0.0, 0.0, 1.0]).expand(2, 4, K))
    assert torch.equal(hard.argmax(dim=-1), net.choice.argmax(dim=-1))


def test_choices_become_hard_and_certain():
    net = SharedPWNet(LATENT, 2, K, slots=4, width=WIDTH).train()
    net.choice.data = torch.eye(K)[torch.arange(8) % K].unflatten(0, (2, 4))
    sharpness = []
    for progress in (0.0, 0.25, 0.5, 1.0):
        net.anneal(progress)
        sharpness.append(net.sharpness)
    assert sharpness == pytest.approx([1.0, 1_000**0.5, 1_000.0, 1_000.0])
    assert torch.allclose(net.assignment(), net.eval().assignment())


def test_a_shared_action_by_hand():
    net, z = SharedPWNet(LATENT, 2, K, slots=2, width=WIDTH).eval(), torch.randn(6, LATENT)
    net.choice.data = torch.tensor([[[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]], [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]])
    net.slot_weights.data = torch.tensor([[2.0, -1.0], [0.5, 0.25]])
    net.bias.data = torch.tensor([0.1, -0.2])
    first, _, third = net.similarity(z).unbind(dim=1)
    expected = torch.stack([2 * third - first + 0.1, 0.75 * third - 0.2], dim=1)
    assert torch.allclose(net(z), expected.tanh(), atol=1e-5)


def test_training_reaches_every_parameter():
    for net in (PWNet(LATENT, 2, K, WIDTH), SharedPWNet(LATENT, 2, K, slots=4, width=WIDTH)):
        net(torch.randn(6, LATENT)).square().sum().backward()
        reached = {name for name, p in net.named_parameters() if p.grad is not None and p.grad.abs().sum() > 1e-6}
        assert {name for name, _ in net.named_parameters()} - reached == {"similarity.second.bias"}  # cancels in T(z) - T(p)


@pytest.mark.parametrize("sizes", [{"num_prototypes": 0}, {"num_prototypes": 3, "width": 1}])
def test_sizes_that_make_no_network_are_refused(sizes: dict[str, int]):
    with pytest.raises(ValueError, match="num_prototypes"):
        PWNet(LATENT, 2, **sizes)


def test_a_pool_without_slots_is_refused():
    with pytest.raises(ValueError, match="slots=0"):
        SharedPWNet(LATENT, 2, K, slots=0)
