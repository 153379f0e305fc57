"""Location-corrected steps: the model is asked again where the first jumps of the step led (plain torch).

Legend: B samples, D tokens, V ids.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from lightning_modules.dfm.path import DiscretePath
from lightning_modules.dfm.schedulers import require_inverse
from lightning_modules.dfm.solvers.base import CLOCK, SECOND_CLOCK, SECOND_TARGET, TARGET, DiscreteSolver
from lightning_modules.dfm.solvers.categorical import draw, jump, rates_away
from lightning_modules.dfm.solvers.chains import Chains
from lightning_modules.dfm.solvers.time_grid import Step
from lightning_modules.dfm.sources import Source


class LocationCorrectedSolver(DiscreteSolver):
    r"""LC(j): tokens jump at their exact times until the j-th jump, then the posterior is renewed and a time-corrected step ends.

    In the time :math:`r(t) = \log \frac{1 - \kappa(t_k)}{1 - \kappa(t)}` from 0 to R the rates :math:`\Lambda^i` are constant:

    .. math::
        r_i = E_i / \Lambda^i, \quad E_i \sim \mathrm{Exp}(1), \qquad r^* = r_{(j)}, \qquad
        t^* = \kappa^{-1}\bigl(1 - (1 - \kappa(t_k)) e^{-r^*}\bigr)

    Where :math:`r^* < R`, tokens with :math:`r_i \le r^*` jump, the model is asked at :math:`(x', t^*)`, and every token gets a
    time-corrected step over the rest, :math:`R - r^*`. Elsewhere all tokens whose clock rang within R jump, and no second call is
    made for that sample. j = 1 renews at the first jump, j > D never does (a time-corrected step).

    Every step waits for the device once, to know which samples need their second call.

    Args:
        j: number of jumps before the renewal; ``auto`` takes :math:`\max(1, \lfloor D / 2N \rfloor)`.

    The other arguments are those of :class:`~lightning_modules.dfm.solvers.base.DiscreteSolver`.

    Raises:
        ValueError: if j is below 1.
        TypeError: if the scheduler has no ``kappa_inverse``.

    Source: Wan et al. 2026 (arXiv 2601.22519). Their code for j > 1 drops the jumps of a step in which fewer than j clocks ring.
    """

    def __init__(
        self, model: Callable[..., Tensor], path: DiscretePath, vocabulary_size: int, source: Source, j: int | str = 1
    ) -> None:
        super().__init__(model, path, vocabulary_size, source)
        require_inverse(path.scheduler)
        if j != "auto" and (not isinstance(j, int) or j < 1):
            raise ValueError(f"j={j!r} must be a number of jumps, 1 or more, or 'auto'")
        self.j = j

    def jumps_before_renewal(self, length: int, num_steps: int) -> int:
        """Return j for D tokens and N steps."""
        return max(1, length // (2 * num_steps)) if self.j == "auto" else int(self.j)

    def step(self, x_BD: Tensor, step: Step, chains: Chains) -> Tensor:
        tokens = x_BD.shape[1:]
        j = self.jumps_before_renewal(tokens[0], chains.num_steps)
        cumulative_BDV, total_BD = rates_away(chains.posterior(x_BD, step.start), x_BD)
        clock_BD, uniform_BD = chains.exponential(CLOCK, tokens), chains.uniform(TARGET, tokens)
        total_BD = total_BD.double()
        rings_BD = clock_BD < step.log_ratio * total_BD
        target_BD = draw(cumulative_BDV, uniform_BD)
        if j > tokens[0]:
            return torch.where(rings_BD, target_BD, x_BD)
        when_BD = torch.where(rings_BD, clock_BD / total_BD, torch.inf)
        renewal_B = when_BD.amin(dim=-1) if j == 1 else when_BD.kthvalue(j, dim=-1).values
        moved_BD = torch.where(rings_BD & (when_BD <= renewal_B.unsqueeze(-1)), target_BD, x_BD)
        rows = (renewal_B < torch.inf).nonzero().squeeze(-1)
        if len(rows) == 0:
            return moved_BD
        return moved_BD.index_copy(0, rows, self._renewed(moved_BD[rows], renewal_B[rows], step, chains.select(rows)))

    def _renewed(self, x_BD: Tensor, elapsed_B: Tensor, step: Step, chains: Chains) -> Tensor:
        """Return the states at the step's end of samples that were renewed after some of its log-ratio time."""
        t_B = self.path.scheduler.kappa_inverse(-torch.expm1(step.log_survival - elapsed_B))
        p_BDV = chains.posterior(x_BD, t_B)
        clock_BD = chains.exponential(SECOND_CLOCK, x_BD.shape[1:])
        uniform_BD = chains.uniform(SECOND_TARGET, x_BD.shape[1:])
        return jump(x_BD, p_BDV, (step.log_ratio - elapsed_B).unsqueeze(-1), clock_BD, uniform_BD)
