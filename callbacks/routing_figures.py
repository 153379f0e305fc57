"""Pictures of how a mixture of experts routes its tokens."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from callbacks.figure_style import PALETTE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEPS = "optimiser steps"


def active_figure(steps: Sequence[int], active_SL: Tensor, target: float) -> "Figure":
    """Draw the mean number of active experts over all layers against optimiser steps, with the target as a line.

    Args:
        steps: optimiser steps, S of them.
        active_SL: mean number of active experts of each layer, ``[S, L]``.
        target: what it should be.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.plot(steps, active_SL.nanmean(dim=1), label="mean over layers")
    axes.axhline(target, color="0.3", linestyle="--", label=f"target {target:g}")
    axes.set(xlabel=STEPS, ylabel="active experts a token")
    axes.set_ylim(bottom=0)
    axes.legend()
    return figure


def threshold_figure(steps: Sequence[int], p_S: Tensor, theta_SL: Tensor | None) -> "Figure":
    """Draw the threshold p and the scales θ of the layers against optimiser steps.

    Args:
        steps: optimiser steps, S of them.
        p_S: the threshold, ``[S]`` or one a layer ``[S, L]``.
        theta_SL: scales, ``[S, L]``; None where logits are not standardised.
    """
    from matplotlib.figure import Figure

    panels = 1 if theta_SL is None else 2
    figure = Figure(figsize=(4.2 * panels + 0.6, 3.6), layout="constrained")
    row = figure.subplots(1, panels, squeeze=False)[0]
    row[0].plot(steps, p_S)
    row[0].set(xlabel=STEPS, ylabel="probability mass p", ylim=(0, 1))
    if theta_SL is not None:
        for layer, (values, colour) in enumerate(zip(theta_SL.T, PALETTE * theta_SL.shape[1], strict=False)):
            row[1].plot(steps, values, color=colour, label=f"layer {layer}")
        row[1].set(xlabel=STEPS, ylabel="scale θ of the logits")
        if theta_SL.shape[1] <= 8:
            row[1].legend()
    return figure


def depth_figure(steps: Sequence[int], active_SL: Tensor) -> "Figure":
    """Draw the active experts of each layer against optimiser steps as a heat map.

    Args:
        steps: optimiser steps, S of them.
        active_SL: mean number of active experts of each layer, ``[S, L]``.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    axes = figure.subplots()
    layers = active_SL.shape[1]
    extent = (min(steps), max(steps) if len(steps) > 1 else min(steps) + 1, layers - 0.5, -0.5)
    image = axes.imshow(active_SL.T, aspect="auto", extent=extent, cmap="viridis", vmin=0, interpolation="nearest")
    axes.set(xlabel=STEPS, ylabel="layer")
    axes.set_yticks(range(layers))
    axes.grid(False)
    figure.colorbar(image, label="active experts a token")
    return figure


def count_figure(counts_LK: Tensor) -> "Figure":
    """Draw how many tokens use how many experts, a line a layer.

    Args:
        counts_LK: tokens of each layer by the number of experts they use, from 0, ``[L, N + 1]``.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    shares = (counts_LK / counts_LK.sum(dim=1, keepdim=True)).numpy()
    edges = np.arange(shares.shape[1] + 1) - 0.5
    for layer, (share, colour) in enumerate(zip(shares, PALETTE * len(shares), strict=False)):
        stairs: Any = axes.stairs(100 * share, edges, color=colour, label=f"layer {layer}")
        stairs.set_linewidth(1.6)
    axes.set(xlabel="experts that a token uses", ylabel="tokens (%)", xlim=(0.5, edges[-1]))
    if len(shares) <= 8:
        axes.legend()
    return figure
