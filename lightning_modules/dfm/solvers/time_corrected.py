"""Time-corrected steps: the schedule is integrated over the step in closed form (plain torch)."""

from lightning_modules.dfm.solvers.frozen_posterior import FrozenPosteriorSolver
from lightning_modules.dfm.solvers.time_grid import Step


class TimeCorrectedSolver(FrozenPosteriorSolver):
    r"""As :class:`FrozenPosteriorSolver`, with

    .. math::
        \tau = R = \int_{t_k}^{t_{k+1}} \frac{\kappa'(s)}{1 - \kappa(s)} \, \mathrm ds
            = \log \frac{1 - \kappa(t_k)}{1 - \kappa(t_{k+1})}

    Only the posterior is frozen over the step. It costs what an Euler step costs. For a masked source both kinds of rate have one
    law.

    Source: Wan et al. 2026 (arXiv 2601.22519).
    """

    def exposure(self, step: Step) -> float:
        return step.log_ratio
