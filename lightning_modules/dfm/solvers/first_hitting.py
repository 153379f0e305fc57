"""Exact simulation of a masked source: one call a token (plain torch).

Legend: B samples, D tokens, V ids.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from lightning_modules.dfm.path import DiscretePath
from lightning_modules.dfm.solvers.base import CLOCK, TARGET, DiscreteSolver
from lightning_modules.dfm.solvers.categorical import draw
from lightning_modules.dfm.solvers.chains import Chains
from lightning_modules.dfm.solvers.time_grid import Step
from lightning_modules.dfm.sources import Source


class FirstHittingSolver(DiscreteSolver):
    r"""Masks fall one by one, at times that do not depend on the values.

    In the time :math:`r = -\log(1 - \kappa)` a mask falls at rate 1, whatever the others do: the times are independent
    :math:`E_i \sim \mathrm{Exp}(1)`. In their order every token is drawn from the posterior given those before it: at most D calls.
    The law is that of the chain without error, for any grid; one step is the default.

    Every call waits for the device once.

    Raises:
        ValueError: if the source is not masked.

    Source: Zheng et al. 2024 (arXiv 2409.02908).
    """

    default_steps = 1

    def __init__(self, model: Callable[..., Tensor], path: DiscretePath, vocabulary_size: int, source: Source) -> None:
        super().__init__(model, path, vocabulary_size, source)
        if source.mask_id is None:
            raise ValueError(
                "first_hitting needs a masked source: with a uniform one tokens jump more than once; use uniformization"
            )

    def step(self, x_BD: Tensor, step: Step, chains: Chains) -> Tensor:
        x_BD = x_BD.clone()
        rows = torch.arange(len(x_BD), device=x_BD.device)
        clock_BD = chains.exponential(CLOCK, x_BD.shape[1:])
        when_BD, order_BD = torch.where(self.source.is_masked(x_BD), clock_BD, torch.inf).sort(dim=-1)
        for event in range(x_BD.shape[1]):
            going = (when_BD[rows, event] < step.log_ratio).nonzero().squeeze(-1)
            if len(going) == 0:
                break
            rows, chains = rows[going], chains.select(going)
            t_B = self.path.scheduler.kappa_inverse(-torch.expm1(step.log_survival - when_BD[rows, event]))
            token_B = order_BD[rows, event]
            p_BV = chains.posterior(x_BD[rows], t_B)[torch.arange(len(rows), device=x_BD.device), token_B]
            x_BD[rows, token_B] = draw(p_BV.cumsum(dim=-1), chains.uniform(TARGET, (), event))
        return x_BD
