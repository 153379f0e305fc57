"""Pictures of what the layers of a gauge network do along the edges."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from callbacks.figure_style import PALETTE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = {"within": "inside a class", "between": "between classes"}


def parallel_figure(history: Mapping[int, Sequence[Mapping[str, float]]]) -> "Figure":
    """Draw the self-parallel share of the messages, and the strength of the cancellation, over epochs, one line a layer.

    Args:
        history: by epoch, for each layer its ``parallel_fraction`` and ``eta``.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    epochs = sorted(history)
    for layer in range(len(history[epochs[0]])):
        for axes, name in ((left, "parallel_fraction"), (right, "eta")):
            values = [history[epoch][layer][name] for epoch in epochs]
            axes.plot(epochs, values, marker="o" if len(epochs) < 20 else None, label=f"layer {layer}")
    left.set(xlabel="epoch", ylabel="self-parallel share of messages", title="what a neighbour repeats")
    right.set(xlabel="epoch", ylabel="effective strength η", title="how much of it is cancelled")
    for axes in (left, right):
        axes.set_ylim(bottom=0)
    left.legend()
    return figure


def alignment_figure(histograms: Sequence[Mapping[str, Tensor]]) -> "Figure":
    """Draw for each layer how neighbours are aligned, links inside a class and between classes apart.

    Args:
        histograms: for each layer the counts ``within`` and ``between`` in equal bins of [-1, 1].
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.2 + 3.4 * len(histograms), 3.4), layout="constrained")
    panels = figure.subplots(1, len(histograms), sharey=True, squeeze=False)[0]
    for layer, (axes, counts) in enumerate(zip(panels, histograms, strict=True)):
        edges = np.linspace(-1, 1, len(counts["within"]) + 1)
        for (kind, label), colour in zip(KINDS.items(), PALETTE, strict=False):
            axes.stairs(_density(counts[kind], edges), edges, fill=True, alpha=0.45, color=colour, label=label)
        axes.axvline(0, color="0.3", linewidth=0.8)
        axes.set(xlabel="alignment of neighbours c", title=f"layer {layer}", xlim=(-1, 1), xticks=(-1, -0.5, 0, 0.5, 1))
    panels[0].set_ylabel("density of links")
    panels[0].legend()
    return figure


def phase_figure(histograms: Sequence[Mapping[str, Tensor]]) -> "Figure | None":
    """Draw the phases of the edges, and what angle is left between neighbours after transport; None if all phases are 0.

    Args:
        histograms: for each layer the counts ``phase_within``, ``phase_between``, ``angle_within`` and ``angle_between`` in equal
            bins of [-π, π], and whether ``phases_differ`` from 0; the phases of all layers are those of the first, the angles are
            shown for the last.
    """
    if not histograms or not histograms[0]["phases_differ"]:
        return None
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 4.6), layout="constrained")
    panels: Any = figure.subplots(1, 2, subplot_kw={"projection": "polar"})
    last = len(histograms) - 1
    shown = (("phase", 0, "phases of the links"), ("angle", last, f"angles left after transport, layer {last}"))
    for axes, (name, layer, title) in zip(panels, shown, strict=True):
        edges = np.linspace(-np.pi, np.pi, len(histograms[layer][f"{name}_within"]) + 1)
        middles, width = (edges[:-1] + edges[1:]) / 2, edges[1] - edges[0]
        for (kind, label), colour in zip(KINDS.items(), PALETTE, strict=False):
            density = _density(histograms[layer][f"{name}_{kind}"], edges)
            axes.bar(middles, density, width, color=colour, alpha=0.45, label=label)
        axes.set_yticklabels([])
        axes.set_title(title)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def _density(counts: Tensor, edges: np.ndarray) -> np.ndarray:
    """Return counts as a density over bins of equal width; 0 if there are none."""
    values = counts.numpy()
    return values / max(values.sum(), 1) / (edges[1] - edges[0])
