"""What published figures add to the project's style: lines told apart twice, files that change only with their content."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from callbacks.figure_style import PALETTE, figure_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":", "-", "--", "-.")


def line_style(position: int) -> dict[str, Any]:
    """Return colour, marker and dashes of the ``position``-th line; a second round has other dashes and hollow markers."""
    turn, place = divmod(position, len(PALETTE))
    hollow = {"markerfacecolor": "white"} if turn % 2 else {}
    return {"color": PALETTE[place], "marker": MARKERS[place], "linestyle": DASHES[(place + turn) % len(DASHES)], **hollow}


def save_figure(draw: Callable[[], "Figure"], path: Path) -> None:
    """Draw in the common style and save as PNG.

    Neither date nor version of matplotlib is written, so that an unchanged figure is an unchanged file.
    """
    with figure_style():
        figure = draw()
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Software": None})
