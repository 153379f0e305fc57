r"""What the controller can know before the first step.

For many experts with Gaussian logits of standard deviation θ, the most probable share q of the experts holds the mass
:math:`p = \Phi(\theta + \Phi^{-1}(q))`. Its inverse is the plant that the controller steers.
"""

import cmath
from statistics import NormalDist

NORMAL = NormalDist()


def initial_threshold(target: float, num_experts: int, theta: float = 1.0) -> float:
    r"""Return the mass that T of N experts hold on average.

    .. math::
        p_0 = \Phi\bigl(\theta + \Phi^{-1}((T - \tfrac12) / N)\bigr)

    Half an expert is taken off because the one that crosses the threshold is active as well.

    Args:
        target: T, from 1 to N.
        num_experts: N.
        theta: θ, standard deviation of a token's logits.

    Raises:
        ValueError: if the target is not within 1 and N.
    """
    if not 1 <= target <= num_experts:
        raise ValueError(f"target={target} must lie between 1 and the {num_experts} experts: every token uses at least one")
    return NORMAL.cdf(theta + NORMAL.inv_cdf((target - 0.5) / num_experts))


def active_share(p: float, theta: float = 1.0) -> float:
    r"""Return the share of experts that hold the mass p, :math:`q(p) = \Phi(\Phi^{-1}(p) - \theta)`."""
    return NORMAL.cdf(NORMAL.inv_cdf(p) - theta)


def plant_gain(p: float, theta: float = 1.0) -> float:
    r"""Return the slope of :func:`active_share`, :math:`g = \varphi(\Phi^{-1}(p) - \theta) / \varphi(\Phi^{-1}(p))`."""
    quantile = NORMAL.inv_cdf(p)
    return NORMAL.pdf(quantile - theta) / NORMAL.pdf(quantile)


def spectral_radius(gain: float, kp: float, ki: float) -> float:
    r"""Return by which factor the error shrinks a step, in the long run.

    On a linear plant the error obeys :math:`e_{n+1} = (1 - g K_p - g K_i) e_n + g K_p e_{n-1}`; this is the larger modulus of the
    two roots of :math:`\lambda^2 - (1 - g K_p - g K_i) \lambda - g K_p`.
    """
    linear = 1 - gain * (kp + ki)
    root = cmath.sqrt(linear**2 + 4 * gain * kp)
    return max(abs(linear + root), abs(linear - root)) / 2
