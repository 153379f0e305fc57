"""Headline experiments of DTop-p."""

from benchmarks.methods.dtop_p.gains import GAINS
from benchmarks.methods.dtop_p.language import LANGUAGE

EXPERIMENTS = (LANGUAGE, GAINS)
