"""Pictures of visual sensitivity."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from callbacks.figure_style import PALETTE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS = ("sensitivity (nats)", "entropy (nats)", "gate")


class Word(NamedTuple):
    """A word of a response: its text, what happened there, and whether it names something that is not in the image."""

    text: str
    sensitivity: float
    entropy: float
    strength: float
    wrong: bool


def strip_figure(captions: Sequence[Sequence[Word]]) -> "Figure":
    """Draw captions as strips of colour, one below the other: sensitivity, entropy and gate of each word; wrong words are red.

    Args:
        captions: words of each caption.
    """
    from matplotlib.figure import Figure

    longest = max(len(caption) for caption in captions)
    figure = Figure(figsize=(max(6.0, 0.34 * longest), 1.75 * len(captions)), layout="constrained")
    panels = figure.subplots(len(captions), 1, squeeze=False)[:, 0]
    tables = [np.array([[word.sensitivity, word.entropy, word.strength] for word in caption]).T for caption in captions]
    greatest = np.max([table.max(axis=1) for table in tables], axis=0).clip(min=1e-9)
    for axes, caption, table in zip(panels, captions, tables, strict=True):
        image = axes.imshow(table / greatest[:, None], aspect="auto", cmap="viridis", vmin=0, vmax=1)
        axes.set_xlim(-0.5, longest - 0.5)
        axes.set_xticks(range(len(caption)), [word.text for word in caption], rotation=60, ha="right", fontsize=8)
        axes.set_yticks(range(len(ROWS)), ROWS, fontsize=8)
        axes.grid(False)
        for label, word in zip(axes.get_xticklabels(), caption, strict=True):
            if word.wrong:
                label.set(color=PALETTE[1], fontweight="bold")
    largest = ", ".join(f"{name.split()[0]} {value:.2g}" for name, value in zip(ROWS, greatest, strict=True))
    figure.colorbar(image, ax=list(panels), label=f"share of the largest value ({largest})", shrink=0.8)
    return figure


def lorenz_figure(held: Sequence[float]) -> "Figure":
    """Draw which share of all sensitivity the most sensitive steps hold.

    Args:
        held: the shares, at equal distances from 0 to 100 % of the steps.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.4, 4.0), layout="constrained")
    axes = figure.subplots()
    steps = np.linspace(0, 100, len(held))
    axes.plot(steps, 100 * np.asarray(held), label="measured")
    axes.plot([0, 100], [0, 100], color="0.5", linestyle="--", label="all alike")
    axes.set(xlabel="steps, most sensitive first (%)", ylabel="visual sensitivity (%)", xlim=(0, 100), ylim=(0, 102))
    axes.legend(loc="lower right")
    return figure
