"""Headline experiments of F-DPMSolver."""

from benchmarks.methods.f_dpm_solver.digits import DIGITS, DIGITS_EDM_RANGE
from benchmarks.methods.f_dpm_solver.mixture import MIXTURE, SIGNS

EXPERIMENTS = (DIGITS, DIGITS_EDM_RANGE, MIXTURE, SIGNS)
