"""Euler steps: the rates of the step's start act throughout (plain torch)."""

from lightning_modules.dfm.solvers.frozen_posterior import FrozenPosteriorSolver
from lightning_modules.dfm.solvers.time_grid import Step


class EulerSolver(FrozenPosteriorSolver):
    r"""As :class:`FrozenPosteriorSolver`, with :math:`\tau = h \rho`.

    Source: Gat et al. 2024 (arXiv 2407.15595).
    """

    def exposure(self, step: Step) -> float:
        return step.length * step.hazard
