"""Samplers of discrete flows by name (plain torch)."""

from typing import Any

from lightning_modules.dfm.solvers.base import DiscreteSolver
from lightning_modules.dfm.solvers.euler import EulerSolver
from lightning_modules.dfm.solvers.first_hitting import FirstHittingSolver
from lightning_modules.dfm.solvers.location_corrected import LocationCorrectedSolver
from lightning_modules.dfm.solvers.metric import MetricLocationCorrectedSolver, MetricTimeCorrectedSolver
from lightning_modules.dfm.solvers.tau_leaping import TauLeapingSolver
from lightning_modules.dfm.solvers.theta import ThetaRK2Solver, ThetaTrapezoidalSolver
from lightning_modules.dfm.solvers.time_corrected import TimeCorrectedSolver
from lightning_modules.dfm.solvers.uniformization import UniformizationSolver

DISCRETE_SOLVERS: dict[str, type[DiscreteSolver]] = {
    "euler": EulerSolver,
    "first_hitting": FirstHittingSolver,
    "lc": LocationCorrectedSolver,
    "metric_lc": MetricLocationCorrectedSolver,
    "metric_tc": MetricTimeCorrectedSolver,
    "tau_leaping": TauLeapingSolver,
    "tc": TimeCorrectedSolver,
    "theta_rk2": ThetaRK2Solver,
    "theta_trap": ThetaTrapezoidalSolver,
    "uniformization": UniformizationSolver,
}


def get_discrete_solver(name: str, **options: Any) -> DiscreteSolver:
    """Return a solver.

    Args:
        name: a key of :data:`DISCRETE_SOLVERS`.
        options: arguments of its class: ``model``, ``path``, ``vocabulary_size``, ``source`` and its own (``rate``, ``j``,
            ``theta``, ``mode``).

    Raises:
        ValueError: if there is no such solver.
    """
    if name not in DISCRETE_SOLVERS:
        raise ValueError(f"there is no discrete solver {name!r}: choose from {', '.join(sorted(DISCRETE_SOLVERS))}")
    return DISCRETE_SOLVERS[name](**options)
