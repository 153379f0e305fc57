from typing import Any

import pytest
import torch
from torch import Tensor

from lightning_modules.networks.unet import ImageAttention, UNet


def awake(**options: Any) -> UNet:
    """Return a network that has left its initial state, in which it is 0."""
    torch.manual_seed(0)
    network = UNet(**{"width": 8, "blocks": 1, "image_size": 8, "channels": 3, **options})
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    return network


def images(count: int = 2, channels: int = 3, size: int = 8) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, channels, size, size, generator=generator), torch.randn(count, generator=generator)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"patch": 2, "multipliers": (1, 2)},
        {"multipliers": (2, 1, 3), "attention": (1,), "head_channels": 4, "blocks": 2},
        {"multipliers": (1,)},
    ],
)
def test_every_parameter_matters(options: dict[str, Any]):
    network, (x, level) = awake(**options), images()
    y = network(x, level)
    assert y.shape == x.shape
    y.square().sum().backward()
    idle = [name for name, parameter in network.named_parameters() if parameter.grad is None or not parameter.grad.abs().max() > 0]
    assert not idle


def test_it_begins_as_zero():
    torch.manual_seed(0)
    x, level = images()
    assert not UNet(width=8, image_size=8, channels=3)(x, level).any()


def test_images_do_not_see_each_other_and_the_level_counts():
    network, (x, level) = awake(attention=(1,)).eval(), images(3)
    together = network(x, level)
    for place in range(3):
        assert torch.allclose(network(x[place : place + 1], level[place : place + 1])[0], together[place], atol=1e-5)
    assert not torch.allclose(network(x, level + 0.3), together, atol=1e-3)


def test_attention_weighs_by_the_softmax_of_products():
    torch.manual_seed(0)
    attention = ImageAttention(8, head_channels=4)
    torch.nn.init.normal_(attention.out.weight)
    x, _ = images(1, 8, 3)
    q, k, v = attention.qkv(attention.norm(x)).flatten(2)[0].unflatten(0, (3, 2, 4))
    weights = torch.einsum("hct,hcs->hts", q, k).div(4**0.5).softmax(dim=-1)
    mixed = torch.einsum("hts,hcs->hct", weights, v).reshape(1, 8, 3, 3)
    assert torch.allclose(attention(x), x + attention.out(mixed), atol=1e-6)


def test_checkpointing_changes_nothing():
    (x, level), gradients = images(), []
    for checkpointing in (False, True):
        network = awake(checkpointing=checkpointing)
        network(x, level).square().sum().backward()
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in network.parameters()]))  # type: ignore[union-attr]
    assert torch.allclose(*gradients)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_size": None}, "needs image_size and channels"),
        ({"width": 6}, "multiple of 4"),
        ({"image_size": 7}, "cannot be halved"),
        ({"attention": (2,)}, "must hold levels from 0 to 1"),
    ],
)
def test_bad_input_is_refused(options: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        UNet(**{"width": 8, "image_size": 8, "channels": 3, **options})
