"""Headline experiments of DTop-p."""

from benchmarks.methods.dtop_p.gains import GAINS
from benchmarks.methods.dtop_p.images import IMAGES
from benchmarks.methods.dtop_p.language import LANGUAGE
from benchmarks.methods.dtop_p.sizes import PAPER_SIZES

EXPERIMENTS = (LANGUAGE, IMAGES, GAINS, PAPER_SIZES)
