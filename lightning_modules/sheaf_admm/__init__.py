"""Sheaf-ADMM: learned multi-agent coordination by unrolled, sheaf-constrained ADMM."""
