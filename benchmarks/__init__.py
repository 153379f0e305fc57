"""Experiments that measure the methods against their baselines, and the code against its peers."""
