"""A picture of scenes and what is said about them: ``python -m datamodules.scenes.figure OUT.png``."""

import argparse
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from datamodules.scenes.text import caption, prompt
from datamodules.scenes.vocabulary import OBJECTS, WORDS, decode
from datamodules.scenes.world import LAYOUTS, SceneWorld, from_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RIGHT, WRONG = "#0072B2", "#D55E00"
COLUMNS, IMAGE, TOP = 4, 2.8, 0.3


def draw_scenes(
    pixels: np.ndarray, objects: np.ndarray, colours: np.ndarray, generated: np.ndarray | None = None, most: int = 8
) -> "Figure":
    """Draw images with their captions; of generated captions, objects that are not there are orange and in capitals.

    Args:
        pixels: images, ``[B, 3, 32, 32]``.
        objects: number of the object in each cell, -1 for none, ``[B, C]``.
        colours: number of its colour, ``[B, C]``.
        generated: ids of captions that a model made, without prompt, ``[B, T]``.
        most: images that are drawn.
    """
    from matplotlib.figure import Figure

    number = min(most, len(pixels))
    rows = -(-number // COLUMNS)
    words = 2.4 if generated is not None else 1.0  # inches below an image
    height = IMAGE + words
    figure = Figure(figsize=(IMAGE * COLUMNS, height * rows + TOP))
    panels = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
    figure.subplots_adjust(0.01, words / (height * rows + TOP), 0.99, 1 - TOP / (height * rows + TOP), 0.05, words / IMAGE)
    for axes in panels:
        axes.set_axis_off()
    for axes, image, there, coloured, sample in zip(panels, pixels, objects, colours, range(number), strict=False):
        axes.imshow(image.transpose(1, 2, 0).clip(0, 1), interpolation="nearest")
        _write(axes, _sentence(caption(there, coloured)), 0.0, "black")
        if generated is not None:
            present = {OBJECTS[thing] for thing in there if thing >= 0}
            said_words = decode(generated[sample].tolist()).split()
            wrong = [word for word in said_words if word in OBJECTS and word not in present]
            said = " ".join(word.upper() if word in wrong else word for word in said_words)
            _write(axes, f"model: {_sentence(said)}", 0.4, WRONG if wrong else RIGHT)
    return figure


def _sentence(text: str) -> str:
    """Leave out the words in angle brackets and the space before the full stop."""
    return " ".join(word for word in text.split() if not word.startswith("<")).replace(" .", ".")


def _write(axes: "Axes", text: str, below: float, colour: str) -> None:
    axes.text(
        0.5, -0.04 - below, textwrap.fill(text, 34), transform=axes.transAxes, ha="center", va="top", fontsize=7.5, color=colour
    )  # fmt: skip


def example_figure(layout: str) -> "Figure":
    """Draw the first scenes of a layout; those of ``quad`` with their prompts."""
    scenes = SceneWorld(layout).scenes(8, "example", seed=0)  # type: ignore[arg-type]
    figure = draw_scenes(from_bytes(scenes.pixels), scenes.objects, scenes.colours)
    if layout == "quad":
        for axes, things, coloured, messy in zip(figure.axes, scenes.objects, scenes.colours, scenes.messy, strict=False):
            axes.set_title(prompt(things, coloured, messy), fontsize=8)
    return figure


def main() -> None:
    """Write the picture of a layout to a file."""
    parser = argparse.ArgumentParser(description=f"Draw scenes of the world of {len(WORDS)} words.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--layout", choices=list(LAYOUTS), default="grid4")
    arguments = parser.parse_args()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    example_figure(arguments.layout).savefig(arguments.out, dpi=90)


if __name__ == "__main__":
    main()
