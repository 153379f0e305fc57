"""Rectified flow: straight paths from data to noise, and the way back (plain torch).

Legend: B samples, K values of t.
"""

from collections.abc import Callable

import torch
from torch import Tensor


def interpolate(clean: Tensor, noise: Tensor, t_B: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return the point of the path at t and its velocity, which a network is to predict.

    .. math::
        x_t = (1 - t) \, x_0 + t \, \epsilon, \qquad \frac{\mathrm d x_t}{\mathrm d t} = \epsilon - x_0

    Args:
        clean: data :math:`x_0`, ``[B, ...]``.
        noise: ε, of the same shape.
        t_B: times from 0 (data) to 1 (noise), ``[B]``.

    Source: Liu et al. 2022 (arXiv 2209.03003); Esser et al. 2024 (arXiv 2403.03206), section 2.
    """
    t = t_B.view(-1, *[1] * (clean.ndim - 1))
    return (1 - t) * clean + t * noise, noise - clean


def flow_loss(velocity: Tensor, target: Tensor) -> Tensor:
    """Return the mean square of the error of each sample, ``[B]``."""
    return (velocity - target).float().square().flatten(1).mean(dim=1)


def logit_normal_mass(edges_K: Tensor) -> Tensor:
    r"""Return how much of the training lies between neighbouring times, ``[K - 1]``.

    Training times are :math:`t = \operatorname{sigmoid}(z)` with :math:`z \sim \mathcal N(0, 1)`, so
    :math:`P(t \le s) = \Phi(\operatorname{logit} s)`.

    Args:
        edges_K: rising times, ``[K]``.
    """
    return torch.special.ndtr(torch.logit(edges_K)).diff()


def guided(conditional: Tensor, unconditional: Tensor, guidance: float) -> Tensor:
    r"""Return :math:`v_\varnothing + w \, (v_c - v_\varnothing)`: the conditional velocity at w = 1, beyond it above.

    Source: Ho and Salimans 2022, classifier-free guidance (arXiv 2207.12598), with :math:`w` for their :math:`1 + w`.
    """
    return unconditional + guidance * (conditional - unconditional)


def euler_sample(velocity: Callable[[Tensor, Tensor], Tensor], noise: Tensor, steps: int) -> Tensor:
    r"""Follow the velocity from noise at t = 1 to data at t = 0 in equal steps.

    .. math::
        x_{t - 1/n} = x_t - \tfrac1n \, v(x_t, t)

    Args:
        velocity: maps points ``[B, ...]`` and times ``[B]`` to velocities.
        noise: ``[B, ...]``.
        steps: n.

    Raises:
        ValueError: if there is no step.
    """
    if steps < 1:
        raise ValueError(f"euler_sample needs at least one step, got steps={steps}")
    x = noise
    for step in range(steps, 0, -1):
        t_B = torch.full((len(x),), step / steps, device=x.device)
        x = x - velocity(x, t_B) / steps
    return x
