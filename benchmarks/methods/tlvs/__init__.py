"""Headline experiments of TLVS."""

from benchmarks.methods.tlvs.scenes import SCENES

EXPERIMENTS = (SCENES,)
