"""Exact simulation by uniformisation: one call a candidate jump (plain torch).

Legend: B samples, D tokens, V ids.
"""

import torch
from torch import Tensor

from lightning_modules.dfm.solvers.base import CLOCK, TARGET, DiscreteSolver
from lightning_modules.dfm.solvers.categorical import draw
from lightning_modules.dfm.solvers.chains import Chains
from lightning_modules.dfm.solvers.time_grid import Step

TOKEN = 5


class UniformizationSolver(DiscreteSolver):
    r"""Candidates come at rate D in the time :math:`r = -\log(1 - \kappa)`; each draws one token anew.

    In this time a token leaves its value at the rate :math:`\Lambda^i \le 1`, so D bounds the rate of all. A candidate picks a
    token i, each with probability 1/D, asks the model at its own time, and draws :math:`z \sim p^i`; :math:`z = x^i` turns it down.
    The law is that of the chain without error, for any grid; one step is the default.

    All samples advance together from candidate to candidate, and only those that have one are evaluated, each about
    :math:`D \log(1/\delta)` times. Every candidate waits for the device once.

    Source: Chen and Ying 2024 (arXiv 2402.08095).
    """

    default_steps = 1

    def step(self, x_BD: Tensor, step: Step, chains: Chains) -> Tensor:
        length = x_BD.shape[1]
        x_BD = x_BD.clone()
        rows = torch.arange(len(x_BD), device=x_BD.device)
        elapsed_B = torch.zeros(len(x_BD), dtype=torch.float64, device=x_BD.device)
        event = 0
        while True:
            elapsed_B = elapsed_B + chains.exponential(CLOCK, (), event) / length
            going = (elapsed_B < step.log_ratio).nonzero().squeeze(-1)
            if len(going) == 0:
                return x_BD
            rows, elapsed_B, chains = rows[going], elapsed_B[going], chains.select(going)
            t_B = self.path.scheduler.kappa_inverse(-torch.expm1(step.log_survival - elapsed_B))
            token_B = (chains.uniform(TOKEN, (), event) * length).long()
            p_BV = chains.posterior(x_BD[rows], t_B)[torch.arange(len(rows), device=x_BD.device), token_B]
            x_BD[rows, token_B] = draw(p_BV.cumsum(dim=-1), chains.uniform(TARGET, (), event))
            event += 1
