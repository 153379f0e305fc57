import pytest
import torch
from gauge_graphs import random_states

from lightning_modules.gesc.complex_layers import ComplexLinear, GaugeNorm, ModReLU, SplitNorm, as_complex

ROTATION = torch.polar(torch.ones(7, 1, dtype=torch.float64), torch.linspace(0.1, 6.0, 7, dtype=torch.float64)[:, None])


def rectifier(bias):
    layer = ModReLU(1).double()
    torch.nn.init.constant_(layer.bias, bias)
    return layer


def drawn_linear():
    torch.manual_seed(0)
    layer = ComplexLinear(4, 3).double()
    torch.nn.init.normal_(layer.bias)
    return layer


def test_linear_map_of_real_input_is_that_of_its_complex_cast():
    layer, x = drawn_linear(), torch.randn(7, 4, dtype=torch.float64)
    weight, bias = torch.view_as_complex(layer.weight), torch.view_as_complex(layer.bias)
    expected = torch.stack([sum(weight[k, f] * x[i, f] for f in range(4)) + bias[k] for i in range(7) for k in range(3)]).view(7, 3)
    for given in (x, x.to(torch.complex128), x.to_sparse_csr()):
        assert (layer(given) - expected).abs().max() < 1e-12


def test_linear_map_is_complex_linear():
    layer, x = ComplexLinear(4, 3, bias=False).double(), random_states(7, 4)
    assert (layer(ROTATION * x) - ROTATION * layer(x)).abs().max() < 1e-12


def test_parameters_are_real_and_start_within_the_fan_in():
    layer = ComplexLinear(25, 400)
    assert layer.weight.shape == (400, 25, 2)
    assert layer.bias.shape == (400, 2)
    assert not any(parameter.is_complex() for parameter in layer.parameters())
    assert 0.199 < layer.weight.max() <= 0.2
    assert -0.2 <= layer.weight.min() < -0.199
    assert not layer.bias.any()
    assert as_complex(layer.weight).shape == (400, 25)


@pytest.mark.parametrize(("bias", "expected"), [(-0.5, 0), (0.5, 0.6 + 0.8j), (0.0, 0.3 + 0.4j), (-0.25, 0.15 + 0.2j)])
def test_modrelu_by_hand(bias, expected):
    assert abs(rectifier(bias)(torch.tensor([[0.3 + 0.4j]], dtype=torch.complex128)).item() - expected) < 1e-12


@pytest.mark.parametrize("bias", [-0.5, 0.0, 0.5])
def test_modrelu_of_zero_is_zero_with_a_finite_gradient(bias):
    z = torch.zeros(1, 1, dtype=torch.complex128, requires_grad=True)
    out = rectifier(bias)(z)
    assert out.item() == 0
    out.real.sum().backward()
    assert z.grad.isfinite().all()


@pytest.mark.parametrize("layer", [rectifier(-0.3), GaugeNorm()], ids=["modrelu", "gauge_norm"])
def test_commutes_with_rotations(layer):
    z = random_states(7, 5)
    rotated = layer(ROTATION * z)
    assert (rotated - ROTATION * layer(z)).abs().max() < 1e-12
    assert (layer(z) - z).abs().max() > 0.1


def test_gauge_norm_gives_mean_zero_and_mean_square_one():
    out = GaugeNorm()(3 * random_states(7, 5) + 2)
    assert out.mean(1).abs().max() < 1e-12
    assert (out.abs().square().mean(1) - 1).abs().max() < 1e-12


def test_split_norm_standardises_each_part_with_the_unbiased_deviation():
    z = random_states(7, 5)
    out = SplitNorm()(z)
    for part, given in ((out.real, z.real), (out.imag, z.imag)):
        expected = (given - given.mean(1, keepdim=True)) / given.std(1, keepdim=True)
        assert (part - expected).abs().max() < 1e-12
    assert (SplitNorm()(ROTATION * z) - ROTATION * out).abs().max() > 0.1


@pytest.mark.parametrize("norm", [GaugeNorm(), SplitNorm()])
def test_constant_rows_have_finite_values_and_gradients(norm):
    z = torch.full((2, 4), 1 + 1j, requires_grad=True)
    out = norm(z)
    out.real.sum().backward()
    assert not out.any()
    assert z.grad.isfinite().all()


def test_split_norm_of_one_channel_is_refused():
    with pytest.raises(ValueError, match="at least 2 channels"):
        SplitNorm()(torch.zeros(3, 1, dtype=torch.complex64))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_refused(dtype):
    with pytest.raises(ValueError, match="32-true or 64-true precision, x is"):
        ComplexLinear(4, 3)(torch.zeros(2, 4, dtype=dtype))
    with pytest.raises(ValueError, match="32-true or 64-true precision, the weight is"):
        ComplexLinear(4, 3).to(dtype)(torch.zeros(2, 4))


def test_autocast_is_refused():
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ValueError, match="autocast is on"):
        ComplexLinear(4, 3)(torch.zeros(2, 4))
