"""Samplers of discrete flow models."""

from lightning_modules.dfm.solvers.base import DiscreteSolver, SolverOutput
from lightning_modules.dfm.solvers.registry import DISCRETE_SOLVERS, get_discrete_solver

__all__ = ["DISCRETE_SOLVERS", "DiscreteSolver", "SolverOutput", "get_discrete_solver"]
