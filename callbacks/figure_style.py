"""The look of every figure of the project."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Colours that people with any colour vision can tell apart (Okabe and Ito 2008), without the pale yellow."""

SETTINGS: Any = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.use": True,
    "figure.dpi": 150,
    "figure.figsize": (6.0, 3.8),
    "font.size": 10,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
}


@contextmanager
def figure_style() -> Iterator[None]:
    """Draw in the project's style inside this context; matplotlib's global settings are as before afterwards."""
    import matplotlib
    from cycler import cycler

    with matplotlib.rc_context({**SETTINGS, "axes.prop_cycle": cycler(color=PALETTE)}):
        yield
