"""Experiments of GESC."""

from benchmarks.methods.gesc import gauge, heterophily, mechanism, memory

EXPERIMENTS = (gauge.GAUGE, *heterophily.EXPERIMENTS, mechanism.MECHANISM, memory.MEMORY)
