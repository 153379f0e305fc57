import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lightning_modules.networks.attention import CausalSelfAttention, SelfAttention
from lightning_modules.networks.diffusion_transformer import (
    DiffusionTransformer,
    ModulatedBlock,
    grid_positions,
    patchify,
    sinusoids,
    unpatchify,
)
from lightning_modules.networks.gelu import GELUFeedForward


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def transformer(feed_forward: Any = None, **settings: Any) -> DiffusionTransformer:
    torch.manual_seed(0)
    sizes = {"image_size": 8, "channels": 3, "num_classes": 5, "patch": 2, "d_model": 16, "num_layers": 2, "num_heads": 4}
    return DiffusionTransformer(**{**sizes, **settings}, feed_forward=feed_forward or (lambda layer: GELUFeedForward(16, 32)))


def awake(network: DiffusionTransformer) -> DiffusionTransformer:
    """Leave the initial state, in which nothing gets through."""
    with torch.no_grad():
        for number, parameter in enumerate(network.parameters()):
            parameter.add_(0.1 * normal(*parameter.shape, seed=number))
    return network


def test_patches_of_an_image():
    image = torch.arange(2 * 3 * 4 * 4).view(2, 3, 4, 4)
    patches = patchify(image, 2)
    assert patches.shape == (2, 4, 12)
    # patch 1 is the upper right one: pixels (0, 2), (0, 3), (1, 2), (1, 3), each with its three channels
    assert patches[0, 1].view(4, 3)[:, 0].tolist() == [2, 3, 6, 7]
    assert patches[0, 1].view(4, 3)[0].tolist() == [2, 2 + 16, 2 + 32]
    for size, patch in ((4, 2), (4, 1), (4, 4), (6, 3)):
        image = normal(2, 3, size, size)
        assert torch.equal(unpatchify(patchify(image, patch), patch, 3), image)


def test_sinusoids_by_hand():
    # size 4: frequencies 1 and 10 000^(-1/2) = 0.01
    expected = [[math.cos(3), math.cos(0.03), math.sin(3), math.sin(0.03)]]
    assert torch.allclose(sinusoids(torch.tensor([3.0]), 4), torch.tensor(expected))
    positions = grid_positions(3, 8)
    assert torch.equal(positions[5, :4], sinusoids(torch.tensor([1.0]), 4)[0]), "row of patch 5"
    assert torch.equal(positions[5, 4:], sinusoids(torch.tensor([2.0]), 4)[0]), "its column"
    with pytest.raises(ValueError, match="multiple of 4"):
        grid_positions(3, 6)
    with pytest.raises(ValueError, match="size=5"):
        sinusoids(torch.tensor([3.0]), 5)


def test_it_begins_as_zero_and_its_blocks_as_the_identity():
    network = transformer()
    image, t, label = normal(4, 3, 8, 8), torch.rand(4), torch.tensor([0, 1, 4, 5])
    assert not network(image, t, label)[0].any()
    x = normal(4, 16, 16)
    for block in network.blocks:
        assert torch.equal(block(x, normal(4, 16))[0], x)
    field, told = awake(network)(image, t, label)
    assert field.shape == image.shape
    assert field.any(dim=(1, 2, 3)).all()
    assert told == [None, None]


def test_the_head_learns_first_and_then_all_else():
    network = transformer()
    image, t, label = normal(6, 3, 8, 8), torch.rand(6), torch.tensor([0, 1, 2, 3, 4, 5])
    optimizer = torch.optim.Adam(network.parameters(), 1e-2)
    for step in range(4):
        (network(image, t, label)[0] - image).square().mean().backward()
        if step == 0:
            assert network.head.weight.grad is not None
            assert network.head.weight.grad.any()
            assert not network.embedding.weight.grad.any()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    (network(image, t, label)[0] - image).square().mean().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in network.parameters())


def test_a_block_by_hand():
    block = ModulatedBlock(8, 2, GELUFeedForward(8, 16))
    nn.init.normal_(block.modulation.linear.weight)
    x, condition = normal(2, 5, 8), normal(2, 8, seed=1)
    made = block.modulation.linear(nn.functional.silu(condition)).view(2, 6, 1, 8)

    def normed(x: Tensor) -> Tensor:
        return (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + 1e-6).sqrt()

    y = x + made[:, 2] * block.attention(normed(x) * (1 + made[:, 1]) + made[:, 0])
    y = y + made[:, 5] * block.feed_forward(normed(y) * (1 + made[:, 4]) + made[:, 3])
    torch.testing.assert_close(block(x, condition)[0], y)


def test_time_class_and_place_matter():
    network = awake(transformer())
    image, t, label = normal(1, 3, 8, 8), torch.tensor([0.3]), torch.tensor([2])
    field = network(image, t, label)[0]
    assert not torch.allclose(network(image, t + 0.1, label)[0], field)
    assert not torch.allclose(network(image, t, label + 1)[0], field)
    rolled = network(image.roll(2, dims=-1), t, label)[0].roll(-2, dims=-1)
    assert not torch.allclose(rolled, field, atol=1e-4), "patches know their places"
    together = network(torch.cat([image, normal(1, 3, 8, 8, seed=3)]), torch.tensor([0.3, 0.9]), torch.tensor([2, 5]))[0]
    torch.testing.assert_close(together[:1], field)


class Told(nn.Module):
    def __init__(self, layer: int) -> None:
        super().__init__()
        self.layer, self.linear = layer, nn.Linear(16, 16)

    def forward(self, x: Tensor, p: Tensor) -> tuple[Tensor, tuple[int, Tensor]]:
        return p * self.linear(x), (self.layer, p)


def test_feed_forward_layers_take_arguments_and_tell():
    network = awake(transformer(Told))
    inputs = normal(2, 3, 8, 8), torch.rand(2), torch.tensor([0, 1])
    arguments = [(torch.tensor(0.5),), (torch.tensor(2.0),)]
    field, told = network(*inputs, arguments)
    assert told == [(0, torch.tensor(0.5)), (1, torch.tensor(2.0))]
    gradients = []
    for network.checkpointing in (False, True):
        network.zero_grad()
        network(*inputs, arguments)[0].square().sum().backward()
        gradients.append([parameter.grad for parameter in network.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)
    with pytest.raises(ValueError, match="arguments for 1"):
        network(*inputs, arguments[:1])


def test_attention_to_all_is_the_same_for_any_order():
    attention = SelfAttention(8, 2)
    x, order = normal(2, 5, 8), torch.tensor([3, 1, 4, 0, 2])
    torch.testing.assert_close(attention(x[:, order]), attention(x)[:, order])
    causal = CausalSelfAttention(8, 2)
    causal.load_state_dict(attention.state_dict())
    torch.testing.assert_close(causal(x)[:, -1], attention(x)[:, -1])
    assert not torch.allclose(causal(x)[:, 0], attention(x)[:, 0])


def test_sizes_that_do_not_fit():
    with pytest.raises(ValueError, match="patch=3 does not divide image_size=8"):
        transformer(patch=3)
    with pytest.raises(ValueError, match="num_classes=0"):
        transformer(num_classes=0)
    with pytest.raises(ValueError, match=r"built for \[3, 8, 8\]"):
        transformer()(normal(2, 1, 8, 8), torch.rand(2), torch.tensor([0, 1]))
