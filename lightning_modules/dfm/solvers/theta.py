"""Two-stage samplers of second order: rates from both ends of a part of the step (plain torch).

Legend: B samples, D tokens, V ids.
"""

from abc import abstractmethod
from collections.abc import Callable

from torch import Tensor

from lightning_modules.dfm.path import DiscretePath
from lightning_modules.dfm.schedulers import hazard
from lightning_modules.dfm.solvers.base import CLOCK, SECOND_CLOCK, SECOND_TARGET, TARGET, DiscreteSolver
from lightning_modules.dfm.solvers.categorical import jump
from lightning_modules.dfm.solvers.chains import Chains
from lightning_modules.dfm.solvers.time_grid import Step
from lightning_modules.dfm.sources import Source


class ThetaSolver(DiscreteSolver):
    r"""An Euler step of length :math:`\theta h` to :math:`x^*`, and a jump whose rates combine those of both states.

    .. math::
        u = \rho(t_k) \, q(\cdot \mid x, t_k), \qquad u^* = \rho(t^*) \, q(\cdot \mid x^*, t^*), \qquad t^* = t_k + \theta h
    """

    def __init__(
        self, model: Callable[..., Tensor], path: DiscretePath, vocabulary_size: int, source: Source, theta: float = 0.5
    ) -> None:
        super().__init__(model, path, vocabulary_size, source)
        self.theta = theta

    @abstractmethod
    def second_half(
        self, x_BD: Tensor, middle_BD: Tensor, u_BDV: Tensor, u_middle_BDV: Tensor, length: float
    ) -> tuple[Tensor, Tensor, float]:
        """Return from which state the second jump starts, its rates (those of staying do not count), and for how long they act.

        Args:
            x_BD: state at the start.
            middle_BD: :math:`x^*`.
            u_BDV: u, 0 at ``x_BD``.
            u_middle_BDV: :math:`u^*`, 0 at ``middle_BD``.
            length: h.
        """

    def hazard_at(self, t: float) -> float:
        """Return ρ(t)."""
        return hazard(self.path.scheduler, t).item()

    def step(self, x_BD: Tensor, step: Step, chains: Chains) -> Tensor:
        tokens, middle = x_BD.shape[1:], step.start + self.theta * step.length
        u_BDV = step.hazard * away(chains.posterior(x_BD, step.start), x_BD)
        middle_BD = jump(x_BD, u_BDV, self.theta * step.length, chains.exponential(CLOCK, tokens), chains.uniform(TARGET, tokens))
        u_middle_BDV = self.hazard_at(middle) * away(chains.posterior(middle_BD, middle), middle_BD)
        origin_BD, rate_BDV, duration = self.second_half(x_BD, middle_BD, u_BDV, u_middle_BDV, step.length)
        clock_BD, uniform_BD = chains.exponential(SECOND_CLOCK, tokens), chains.uniform(SECOND_TARGET, tokens)
        return jump(origin_BD, rate_BDV, duration, clock_BD, uniform_BD)


class ThetaRK2Solver(ThetaSolver):
    r"""θ-RK-2: the second jump starts again from x.

    .. math::
        r = \Bigl( \bigl(1 - \tfrac1{2\theta}\bigr) u + \tfrac1{2\theta} u^* \Bigr)_+, \qquad
        P(\text{jump of token } i) = 1 - e^{-h \sum_{z \ne x^i} r^i(z)}

    Args:
        theta: θ, from 1/2 to 1.

    The other arguments are those of :class:`~lightning_modules.dfm.solvers.base.DiscreteSolver`.

    Raises:
        ValueError: if θ is outside.

    Source: Ren et al. 2025 (arXiv 2502.00234).
    """

    def __init__(
        self, model: Callable[..., Tensor], path: DiscretePath, vocabulary_size: int, source: Source, theta: float = 0.5
    ) -> None:
        super().__init__(model, path, vocabulary_size, source, theta)
        if not 0.5 <= theta <= 1:
            raise ValueError(f"theta={theta} must lie between 0.5 and 1 for theta_rk2")

    def second_half(
        self, x_BD: Tensor, middle_BD: Tensor, u_BDV: Tensor, u_middle_BDV: Tensor, length: float
    ) -> tuple[Tensor, Tensor, float]:
        weight = 1 / (2 * self.theta)
        return x_BD, ((1 - weight) * u_BDV + weight * u_middle_BDV).clamp_min(0), length


class ThetaTrapezoidalSolver(ThetaSolver):
    r"""θ-trapezoidal: the second jump starts from :math:`x^*` with extrapolated rates.

    .. math::
        r = \bigl( \alpha_1 u^* - \alpha_2 u \bigr)_+, \qquad \alpha_1 = \frac1{2\theta(1-\theta)}, \qquad
        \alpha_2 = \frac{(1-\theta)^2 + \theta^2}{2\theta(1-\theta)}, \qquad
        P(\text{jump of token } i) = 1 - e^{-(1-\theta) h \sum_{z \ne x^{*i}} r^i(z)}

    Args:
        theta: θ, between 0 and 1.

    The other arguments are those of :class:`~lightning_modules.dfm.solvers.base.DiscreteSolver`.

    Raises:
        ValueError: if θ is outside.

    Source: Ren et al. 2025 (arXiv 2502.00234).
    """

    def __init__(
        self, model: Callable[..., Tensor], path: DiscretePath, vocabulary_size: int, source: Source, theta: float = 0.5
    ) -> None:
        super().__init__(model, path, vocabulary_size, source, theta)
        if not 0 < theta < 1:
            raise ValueError(f"theta={theta} must lie between 0 and 1 for theta_trap")

    def second_half(
        self, x_BD: Tensor, middle_BD: Tensor, u_BDV: Tensor, u_middle_BDV: Tensor, length: float
    ) -> tuple[Tensor, Tensor, float]:
        later, scale = 1 - self.theta, 1 / (2 * self.theta * (1 - self.theta))
        rate_BDV = (scale * u_middle_BDV - scale * (later**2 + self.theta**2) * u_BDV).clamp_min(0)
        return middle_BD, rate_BDV, later * length


def away(p_BDV: Tensor, x_BD: Tensor) -> Tensor:
    """Return the weights with that of the state itself set to 0."""
    return p_BDV.scatter(-1, x_BD.unsqueeze(-1), 0)
