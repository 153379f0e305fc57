"""Steps that freeze the posterior: one call of the model, and each token jumps on its own (plain torch)."""

from abc import abstractmethod
from collections.abc import Callable

from torch import Tensor

from lightning_modules.dfm.path import DiscretePath
from lightning_modules.dfm.solvers.base import CLOCK, TARGET, DiscreteSolver, checked_rate
from lightning_modules.dfm.solvers.categorical import jump, jump_to_data
from lightning_modules.dfm.solvers.chains import Chains
from lightning_modules.dfm.solvers.time_grid import Step
from lightning_modules.dfm.sources import Source


class FrozenPosteriorSolver(DiscreteSolver):
    r"""A token jumps with probability :math:`1 - e^{-\tau \Lambda^i}`, to z in proportion to :math:`q^i(z)`.

    Args:
        rate: ``marginal``, or ``conditional``: draw the data :math:`x_1^i \sim p^i` and go there with probability
            :math:`1 - e^{-\tau}`.

    The other arguments are those of :class:`~lightning_modules.dfm.solvers.base.DiscreteSolver`.
    """

    def __init__(
        self, model: Callable[..., Tensor], path: DiscretePath, vocabulary_size: int, source: Source, rate: str = "marginal"
    ) -> None:
        super().__init__(model, path, vocabulary_size, source)
        self.rate = checked_rate(rate)

    @abstractmethod
    def exposure(self, step: Step) -> float:
        """Return τ, for how long the rates of the posterior act in a step."""

    def step(self, x_BD: Tensor, step: Step, chains: Chains) -> Tensor:
        p_BDV = chains.posterior(x_BD, step.start)
        clock_BD, uniform_BD = chains.exponential(CLOCK, x_BD.shape[1:]), chains.uniform(TARGET, x_BD.shape[1:])
        act = jump if self.rate == "marginal" else jump_to_data
        return act(x_BD, p_BDV, self.exposure(step), clock_BD, uniform_BD)
