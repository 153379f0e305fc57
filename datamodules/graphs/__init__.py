"""Graphs for node classification: benchmarks from files, a synthetic set with a gauge, loaders and a neighbour sampler."""
