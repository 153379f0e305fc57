"""Pictures of what a diffusion model makes, and of how it fares over time."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from callbacks.figure_style import PALETTE

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def sample_figure(images_KnCHW: Tensor) -> "Figure":
    """Draw images in a grid, a row a class.

    Args:
        images_KnCHW: n images of each of K classes, with 1 or 3 channels in [-1, 1], ``[K, n, C, H, W]``.

    Raises:
        ValueError: if the images have another number of channels.
    """
    from matplotlib.figure import Figure

    classes, count, channels, height, width = images_KnCHW.shape
    if channels not in (1, 3):
        raise ValueError(f"images with {channels} channels cannot be drawn: decode latents before, or leave SampleGrid out")
    shown = ((images_KnCHW.float().cpu() + 1) / 2).clamp(0, 1)
    sheet = np.ones((classes * (height + 1) - 1, count * (width + 1) - 1, channels))
    for row in range(classes):
        for column in range(count):
            top, left = row * (height + 1), column * (width + 1)
            sheet[top : top + height, left : left + width] = shown[row, column].permute(1, 2, 0).numpy()
    figure = Figure(figsize=(0.55 * count + 0.6, 0.55 * classes * height / width + 0.4), layout="constrained")
    axes = figure.subplots()
    axes.imshow(sheet.squeeze(-1) if channels == 1 else sheet, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([row * (height + 1) + (height - 1) / 2 for row in range(classes)], [str(row) for row in range(classes)])
    axes.tick_params(length=0)
    axes.set_ylabel("class")
    axes.spines[:].set_visible(False)
    axes.grid(False)
    return figure


def decile_figure(values: Mapping[str, Sequence[float]], lines: Mapping[str, float] | None = None) -> "Figure":
    """Draw values over the time, a panel each, with a point at the middle of each tenth.

    Args:
        values: ten numbers of each quantity, by its name.
        lines: a level to compare with, by the name of the quantity.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(values) + 0.4, 3.4), layout="constrained")
    middles = (np.arange(10) + 0.5) / 10
    panels = figure.subplots(1, len(values), squeeze=False)[0]
    for axes, (name, numbers), colour in zip(panels, values.items(), PALETTE, strict=False):
        axes.plot(middles, numbers, marker="o", color=colour)
        if lines and name in lines:
            axes.axhline(lines[name], color="0.3", linestyle="--", label=f"target {lines[name]:g}")
            axes.legend()
        axes.set(xlabel="time t, from data to noise", ylabel=name, xlim=(0, 1))
        axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
    return figure
