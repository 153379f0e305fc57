import pytest
import torch
from torch import nn

from lightning_modules.r2r2.elu import elu


@pytest.mark.parametrize("trained", [False, True])
def test_values_and_gradients_are_those_of_torch(trained: bool):
    x = torch.cat([torch.linspace(-200, 200, 4001), torch.tensor([0.0, -0.0, 1e-30, -1e-30, -1e-4, torch.inf, -torch.inf])])
    results = []
    for layer in (elu, nn.functional.elu):
        inputs = x.clone().requires_grad_(trained)
        y = layer(inputs)
        if trained:
            (y * torch.linspace(1, 2, len(x))).sum().backward()
            results.append((y.detach(), inputs.grad))
        else:
            results.append((y,))
        assert torch.equal(inputs.detach(), x)
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=2e-7)


def test_nan_is_not_hidden():
    assert elu(torch.tensor(torch.nan)).isnan()


def test_it_is_differentiated_correctly():
    x = torch.randn(20, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(elu, x)
