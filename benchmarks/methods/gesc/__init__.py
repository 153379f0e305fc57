"""Experiments of GESC."""

from benchmarks.methods.gesc import gauge, heterophily, memory

EXPERIMENTS = (gauge.GAUGE, *heterophily.EXPERIMENTS, memory.MEMORY)
