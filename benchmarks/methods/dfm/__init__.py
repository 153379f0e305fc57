"""Headline experiments of the corrected samplers of discrete flow models."""

from benchmarks.methods.dfm.blocks import BLOCKS, EXACT
from benchmarks.methods.dfm.digits import DIGITS
from benchmarks.methods.dfm.letters import LETTERS

EXPERIMENTS = (EXACT, *BLOCKS, LETTERS, *DIGITS)
