"""The look of all published figures."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette, told apart with any kind of colour vision; markers and dashes tell it a second time.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":", "-", "--", "-.")

SETTINGS: Any = {
    "figure.figsize": (6.0, 3.8),
    "figure.constrained_layout.use": True,
    "savefig.dpi": 160,
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.3,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "legend.frameon": False,
}


def line_style(position: int) -> dict[str, Any]:
    """Return colour, marker and dashes of the ``position``-th line."""
    place = position % len(COLOURS)
    return {"color": COLOURS[place], "marker": MARKERS[place], "linestyle": DASHES[place]}


def save_figure(draw: Callable[[], "Figure"], path: Path) -> None:
    """Draw in the common style and save as PNG.

    Neither date nor version of matplotlib is written, so that an unchanged figure is an unchanged file.
    """
    import matplotlib

    with matplotlib.rc_context(SETTINGS):
        figure = draw()
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Software": None})
