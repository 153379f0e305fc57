"""Pictures of learned features."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVES = 12
FLOOR = 1e-6
"""Smaller ratios are rounding errors of float32."""


def spectrum_figure(spectra: Mapping[int, tuple[Tensor, Tensor]]) -> "Figure":
    """Draw how the singular values of features fall, at up to twelve moments of the training, from light to dark.

    Args:
        spectra: by step, singular values of the features and of the features minus their mean, each falling and ``[r]``.
    """
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 3.6), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    shown = _spread(sorted(spectra), CURVES)
    colours = ListedColormap(colormaps["viridis_r"].resampled(256)([0.1 + 0.9 * k / 255 for k in range(256)]))
    mapped: Any = ScalarMappable(Normalize(shown[0], max(shown[-1], shown[0] + 1)), colours)
    for panel, (axes, title) in enumerate(zip(panels, ("features Z", "features minus their mean, HZ"), strict=True)):
        for step in shown:
            values = spectra[step][panel]
            ratios = (values / values[0].clamp_min(1e-30)).numpy()
            axes.plot(range(1, len(ratios) + 1), ratios, color=mapped.to_rgba(step), linewidth=1.4)
        axes.set(yscale="log", xlabel="singular value, the largest first", title=title)
    panels[0].set_ylim(max(FLOOR, panels[0].get_ylim()[0]), 1.5)
    panels[0].set_ylabel("ratio to the largest")
    bar: Any = figure.colorbar(mapped, ax=panels, label="step")
    bar.ax.ticklabel_format(style="plain")
    return figure


def _spread(steps: list[int], count: int) -> list[int]:
    """Return up to ``count`` of the steps, evenly, with the first and the last."""
    if len(steps) <= count:
        return steps
    return [steps[round(k * (len(steps) - 1) / (count - 1))] for k in range(count)]
