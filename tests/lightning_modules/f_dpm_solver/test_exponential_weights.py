import math

import numpy as np
import pytest
import torch

from lightning_modules.f_dpm_solver.exponential_weights import exponential_moments, noise_step, noise_weights
from lightning_modules.f_dpm_solver.grids import Grid


def quadrature(function, width):
    """Integral from 0 to the width of a smooth function, by 40 points of Gauss and Legendre."""
    nodes, weights = np.polynomial.legendre.leggauss(40)
    places = 0.5 * width * (nodes + 1)
    return 0.5 * width * sum(w * function(r) for w, r in zip(weights, places, strict=True))


@pytest.mark.parametrize("width", [1e-6, 1e-3, 0.1, 0.999, 1.001, 4.0])
def test_moments_are_integrals_to_full_relative_precision(width):
    for k, moment in enumerate(exponential_moments(width, 4)):
        expected = quadrature(lambda r, k=k: r**k * math.exp(-r), width)
        assert moment == pytest.approx(expected, rel=1e-12, abs=0)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_polynomials_below_the_order_are_integrated_exactly(order):
    generator = torch.Generator().manual_seed(order)
    for _ in range(20):
        gaps = 0.05 + 1.5 * torch.rand(order, generator=generator, dtype=torch.float64)
        points = [-gap for gap in [0.0, *gaps[1:].cumsum(0).tolist()]]
        width = gaps[0].item()
        coefficients = torch.randn(order, generator=generator, dtype=torch.float64).tolist()

        def polynomial(r, coefficients=coefficients):
            return sum(c * r**k for k, c in enumerate(coefficients))

        weights = noise_weights([2.5 + point for point in points], 2.5, 2.5 + width)
        found = sum(w * polynomial(point) for w, point in zip(weights, points, strict=True))
        assert found == pytest.approx(quadrature(lambda r, p=polynomial: p(r) * math.exp(-r), width), abs=1e-10)
        assert sum(weights) == pytest.approx(-math.expm1(-width), abs=1e-12)


def test_a_polynomial_of_the_order_is_not_exact():
    weights = noise_weights([0.0, -1.0], 0.0, 1.0)
    assert sum(w * point**2 for w, point in zip(weights, [0.0, -1.0], strict=True)) != pytest.approx(
        exponential_moments(1.0, 3)[2], abs=1e-2
    )


def test_weights_of_two_points_by_hand():
    # h = 1, points 0 and -1/2: w_1 = -2 phi_1, w_0 = phi_0 + 2 phi_1
    phi_0, phi_1 = 1 - math.exp(-1), 1 - 2 * math.exp(-1)
    assert noise_weights([3.0, 2.5], 3.0, 4.0) == pytest.approx([phi_0 + 2 * phi_1, -2 * phi_1], abs=1e-14)


def test_one_point_is_the_step_of_ddim():
    a, s = torch.tensor([0.3, 0.8]), torch.tensor([0.9, 0.4])
    scale, (weight,) = noise_step(Grid(torch.tensor([1.0, 0.0]), a, s), 0, 1, [0])
    assert scale == pytest.approx(0.8 / 0.3, rel=1e-6)
    assert weight == pytest.approx(0.4 - 0.8 * 0.9 / 0.3, rel=1e-6)
