"""Sheaf-ADMM beside its peers."""

from benchmarks.speed_cases.sheaf_admm import laplacians, steps

CASES = (*laplacians.CASES, *steps.CASES)
