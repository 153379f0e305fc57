"""Experiments of R2R2."""

from benchmarks.methods.r2r2 import agents, paper, representation

EXPERIMENTS = (*representation.EXPERIMENTS, *agents.EXPERIMENTS, *paper.EXPERIMENTS)
