"""Weights of exponential multistep methods: exact integrals of a polynomial through past noise predictions (plain torch).

The weights are a few numbers a step, computed in double precision before any tensor moves.
"""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from lightning_modules.f_dpm_solver.grids import Grid

SERIES_BELOW = 1.0


def exponential_moments(width: float, count: int) -> list[float]:
    r"""Return :math:`\varphi_k = \int_0^d r^k e^{-r} \, \mathrm d r` for k = 0 .. count - 1.

    The recursion :math:`\varphi_k = k \varphi_{k-1} - d^k e^{-d}` cancels for small d. There the series of positive terms

    .. math::
        \varphi_k = e^{-d} \sum_{n \ge 0} \frac{d^{k+1+n}}{(k+1)(k+2) \cdots (k+1+n)}

    gives the highest moment, and the recursion read backwards the others.

    Args:
        width: d.
        count: number of moments.
    """
    decay = math.exp(-width)
    if width > SERIES_BELOW:
        moments = [-math.expm1(-width)]
        for k in range(1, count):
            moments.append(k * moments[-1] - width**k * decay)
        return moments
    term = total = width**count / count
    for n in range(count + 1, count + 20):
        term *= width / n
        total += term
    moments = [total * decay]
    for k in range(count - 1, 0, -1):
        moments.append((moments[-1] + width**k * decay) / k)
    return moments[::-1]


def noise_weights(log_snr: Sequence[float], start: float, end: float) -> list[float]:
    r"""Return the weights w of noise predictions in a step from :math:`\lambda` to :math:`\lambda + d`.

    .. math::
        \sum_j w_j \, p(\lambda_j - \lambda) = \int_0^d p(r) \, e^{-r} \, \mathrm d r \qquad
        \text{for all polynomials } p \text{ of degree} < q

    Args:
        log_snr: where the q predictions were made, :math:`\lambda_j`, all different.
        start: λ.
        end: λ + d.
    """
    width = end - start
    moments = exponential_moments(width, len(log_snr))
    scaled = [moment / width**k for k, moment in enumerate(moments)]
    nodes = [(point - start) / width for point in log_snr]
    weights = []
    for j, node in enumerate(nodes):
        basis, scale = [1.0], 1.0
        for other in nodes[:j] + nodes[j + 1 :]:
            basis = [low - other * high for low, high in zip([0.0, *basis], [*basis, 0.0], strict=True)]
            scale *= node - other
        weights.append(sum(c * moment for c, moment in zip(basis, scaled, strict=True)) / scale)
    return weights


def noise_step(grid: Grid, start: int, end: int, points: Sequence[int]) -> tuple[float, list[float]]:
    r"""Return A and W of the step :math:`x_e = A x_i + \sum_j W_j \epsilon_j` from grid point i to grid point e.

    .. math::
        A = \frac{a_e}{a_i}, \qquad W_j = -\frac{a_e s_i}{a_i} w_j

    This is the exact solution of the ODE for noise predictions that are a polynomial in λ.

    Args:
        grid: points.
        start: i.
        end: e.
        points: grid points of the noise predictions.
    """
    _, a, s, log_snr = grid.numbers
    weights = noise_weights([log_snr[point] for point in points], log_snr[start], log_snr[end])
    return a[end] / a[start], [-a[end] * s[start] / a[start] * weight for weight in weights]


def combine(x: Tensor, scale: float, noise: Iterable[Tensor], weights: Iterable[float]) -> Tensor:
    r"""Return :math:`A x + \sum_j W_j \epsilon_j`; stops at the shorter of both lists."""
    moved = x * scale
    for prediction, weight in zip(noise, weights, strict=False):
        moved.add_(prediction, alpha=weight)
    return moved


def noise_prediction(x: Tensor, data: Tensor, a: float, s: float) -> Tensor:
    r"""Return :math:`\epsilon = (x - a D) / s`."""
    return (x / s).add_(data, alpha=-a / s)


def noise_part(x: Tensor, data: Tensor, a: float) -> Tensor:
    r"""Return :math:`s \epsilon = x - a D`, which is cheaper to keep than ε."""
    return torch.sub(x, data, alpha=a)


def for_noise_parts(step: tuple[float, list[float]], s: Sequence[float], newest: int) -> tuple[float, list[float]]:
    r"""Turn the weights of noise predictions at the grid points i, i - 1, ... into those of :math:`s \epsilon` there.

    Args:
        step: A and W, as of :func:`noise_step`.
        s: noise of all grid points.
        newest: i.
    """
    scale, weights = step
    return scale, [weight / s[newest - j] for j, weight in enumerate(weights)]
