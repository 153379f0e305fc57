"""Pictures of an actor that decides by prototypes: what they stand for, who decides when, and what a state looks like to it.

Legend: C cards, T decisions of an episode, K prototypes, S moments, n observation, m action.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from callbacks.figure_style import PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Paint = Callable[["Axes", Tensor], None]

COLOURS, OTHERS = PALETTE[:5], "#B0B0B0"
LINES = 3
BINS = 20
CARDS_A_ROW = 4
STRONGEST = 3


def leading_colours(weights: Tensor) -> dict[int, str]:
    """Give the prototypes with the largest mean weights in an episode, ``[T, K]``, a colour each, largest first."""
    leaders = weights.mean(dim=0).topk(min(len(COLOURS), weights.shape[1])).indices.tolist()
    return dict(zip(leaders, COLOURS, strict=False))


def turning_moments(weights: Tensor, count: int) -> list[int]:
    """Choose up to ``count`` different decisions, first and last among them, such that as much changes between any two in a row.

    What changes is who decides: half the sum of the absolute differences of the weights of consecutive decisions. A thousandth is
    added to each, so that time counts where nothing changes.

    Args:
        weights: ``[T, K]``.
        count: number of moments, at least 2.
    """
    change = 0.5 * weights.diff(dim=0).abs().sum(dim=1).double() + 1e-3
    passed = torch.cat([change.new_zeros(1), change.cumsum(dim=0)])
    wanted = torch.linspace(0, float(passed[-1]), count, dtype=passed.dtype)
    nearest = (passed - wanted.unsqueeze(1)).abs().argmin(dim=1)
    return nearest.unique().tolist()


def squashed_masses(mean: Tensor, std: Tensor, bins: int = BINS) -> Tensor:
    r"""Return how much of :math:`a = \tanh(u)`, u Gaussian, lies in each of equal parts of [-1, 1], ``[..., bins]``.

    A density would be infinite at the bounds for wide Gaussians, masses are not.

    Args:
        mean, std: of u, any shape.
        bins: number of parts.
    """
    edges = torch.linspace(-1, 1, bins + 1, dtype=torch.float64).atanh()
    return torch.special.ndtr((edges - mean.double().unsqueeze(-1)) / std.double().unsqueeze(-1)).diff(dim=-1)


def cards_figure(
    numbers: Sequence[int], states: Tensor, means: Tensor, stds: Tensor, usage: Tensor, colours: Mapping[int, str], paint: Paint
) -> "Figure":
    """Draw a card a prototype: its state, the actions that it stands for, and how much it decides.

    Args:
        numbers: numbers of the C prototypes.
        states: their states, ``[C, n]``.
        means, stds: their Gaussians before the squashing, ``[C, m]``.
        usage: their mean weights, ``[C]``.
        colours: colour of some prototypes, by number.
        paint: draws a state.
    """
    from matplotlib.figure import Figure

    columns = min(CARDS_A_ROW, len(numbers))
    rows = -(-len(numbers) // columns)
    figure = Figure(figsize=(2.3 * columns + 0.4, 3.5 * rows + 0.6), layout="constrained")
    grid = figure.subplots(2 * rows, columns, squeeze=False, height_ratios=[1.7, 1] * rows)
    uppers, lowers = grid[0::2].flatten(), grid[1::2].flatten()
    for place, (above, below) in enumerate(zip(uppers, lowers, strict=True)):
        if place >= len(numbers):
            above.set_axis_off()
            below.set_axis_off()
            continue
        number = numbers[place]
        paint(above, states[place])
        above.set_title(
            f"prototype {number}\nusage {usage[place]:.1%}", fontsize=10, color=colours.get(number, "black"), fontweight="bold"
        )
        draw_actions(below, means[place], stds[place])
    if means.shape[1] <= LINES:
        highest = max(axes.get_ylim()[1] for axes in lowers[: len(numbers)])
        for axes in lowers[: len(numbers)]:
            axes.set_ylim(0, highest)
        for axes in grid[1::2, 0]:
            axes.set_ylabel(f"share per {2 / BINS:g}", fontsize=9)
    figure.suptitle("the most used prototypes: the real state and the actions that each stands for", fontsize=11)
    return figure


def draw_actions(axes: "Axes", mean: Tensor, std: Tensor) -> None:
    """Draw a squashed Gaussian over actions: its share in each twentieth of the range, or from four dimensions on intervals.

    Args:
        axes: an empty panel.
        mean, std: before the squashing, ``[m]``.
    """
    size = len(mean)
    if size <= LINES:
        edges = np.linspace(-1, 1, BINS + 1)
        masses = squashed_masses(mean, std)
        for index, share in enumerate(masses.numpy(), start=1):
            colour = PALETTE[index - 1]
            axes.stairs(share, edges, fill=size == 1, color=colour, linewidth=1.4, label=f"a{index}")
        axes.set(xlim=(-1, 1), ylim=(0, 1.05 * float(masses.max())), xlabel="action")
        if size > 1:
            axes.legend(fontsize=7, handlelength=1, borderpad=0, labelspacing=0.1)
    else:
        places = np.arange(1, size + 1)
        low, middle, high = ((mean + side * std).tanh().numpy() for side in (-1, 0, 1))
        axes.hlines(places, low, high, color=PALETTE[0], linewidth=1.6)
        axes.plot(middle, places, "o", color=PALETTE[1], markersize=3)
        ticks = places if size <= 8 else places[[0, -1]]
        axes.set_yticks(ticks, [f"a{place}" for place in ticks], fontsize=7)
        axes.set(xlim=(-1.02, 1.02), ylim=(size + 0.6, 0.4), xlabel="action, mean ± std")
    axes.xaxis.label.set_fontsize(9)
    axes.tick_params(labelsize=8)


def timeline_figure(weights: Tensor, actions: Tensor, rewards: Tensor, colours: Mapping[int, str], title: str) -> "Figure":
    """Draw who decides during an episode, what is done and what it earns.

    Args:
        weights: ``[T, K]``.
        actions: ``[T, m]``.
        rewards: ``[T]``.
        colours: colours of the prototypes to show apart, by number, from the bottom up.
        title: what episode it is.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.5, 6.0), layout="constrained")
    above, middle, below = figure.subplots(3, 1, sharex=True, height_ratios=[2.2, 1, 1])
    time = np.arange(len(weights))
    shown = [*colours]
    labels = [f"prototype {number}" for number in shown]
    shares = weights[:, shown]
    if others := weights.shape[1] - len(shown):
        labels.append(f"the other {others}")
        shares = torch.cat([shares, 1 - shares.sum(dim=1, keepdim=True)], dim=1)
    above.stackplot(time, shares.T.numpy(), colors=[*colours.values(), OTHERS], labels=labels, linewidth=0)
    handles, names = above.get_legend_handles_labels()
    above.legend(handles[::-1], names[::-1], loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=9)
    above.set(xlim=(0, max(len(weights) - 1, 1)), ylim=(0, 1), ylabel="weights", title=title)
    _draw_action_curves(figure, middle, actions)
    below.plot(time, rewards.numpy(), color="black", linewidth=1.4)
    below.set(ylabel="reward", xlabel="decision")
    return figure


def strip_figure(
    moments: Sequence[int],
    obs: Tensor,
    actions: Tensor,
    frames: Sequence[np.ndarray],
    weights: Tensor,
    prototype_states: Tensor,
    prototype_actions: Tensor,
    colours: Mapping[int, str],
    title: str,
    paint: Paint,
) -> "Figure":
    """Draw moments of an episode in a row, and below each the prototypes that decide most.

    Args:
        moments: numbers of the S decisions.
        obs: what was observed in the episode, ``[T, n]``.
        actions: what was done, ``[T, m]``; written down if there is one dimension.
        frames: picture of each state, T or none.
        weights: ``[T, K]``.
        prototype_states: ``[K, n]``.
        prototype_actions: the action that each stands for, ``[K, m]``.
        colours: colour of some prototypes, by number.
        title: what episode it is.
        paint: draws a state.
    """
    from matplotlib.figure import Figure

    strongest = min(STRONGEST, weights.shape[1])
    first = 2 if len(frames) else 1
    figure = Figure(figsize=(1.4 * len(moments) + 0.9, 1.75 * (first + strongest) + 0.6), layout="constrained")
    grid = figure.subplots(first + strongest, len(moments), squeeze=False)
    for column, moment in zip(grid.T, moments, strict=True):
        if len(frames):
            column[0].imshow(frames[moment])
            column[0].set(xticks=[], yticks=[])
            column[0].grid(visible=False)
            column[0].spines[:].set_visible(False)
        paint(column[first - 1], obs[moment])
        column[0].set_title(f"decision {moment}{_action_text(actions[moment])}", fontsize=9)
        shares, numbers = weights[moment].topk(strongest)
        for axes, share, number in zip(column[first:], shares.tolist(), numbers.tolist(), strict=True):
            paint(axes, prototype_states[number])
            percent = f"{share:.0%}" if share >= 0.01 else "<1%"
            text = f"{percent} prototype {number}{_action_text(prototype_actions[number])}"
            axes.set_title(text, fontsize=9, color=colours.get(number, "black"), fontweight="bold")
    names = [*(["picture"] if len(frames) else []), "this state", "looks like", "and like", "and like"]
    for axes, name in zip(grid[:, 0], names, strict=False):
        axes.annotate(
            name, (0, 0.5), (-26, 0), xycoords="axes fraction", textcoords="offset points", rotation=90, va="center", ha="center"
        )
    figure.suptitle(title)
    return figure


def _action_text(action: Tensor) -> str:
    """Write an action of one dimension on a line of its own."""
    return f"\naction {float(action[0]):+.2f}" if len(action) == 1 else ""


def _draw_action_curves(figure: "Figure", axes: "Axes", actions: Tensor) -> None:
    """Draw up to three action dimensions as curves, more as a picture with a row each."""
    steps, size = actions.shape
    if size <= LINES:
        for index, curve in enumerate(actions.T.numpy(), start=1):
            axes.plot(np.arange(steps), curve, color=PALETTE[index - 1], linewidth=1.4, label=f"a{index}")
        if size > 1:
            axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=9)
        axes.set(ylim=(-1.05, 1.05), ylabel="action")
    else:
        picture: Any = axes.imshow(
            actions.T.numpy(), aspect="auto", cmap="PuOr", vmin=-1, vmax=1, extent=(-0.5, steps - 0.5, size + 0.5, 0.5)
        )
        axes.grid(visible=False)
        axes.set(ylabel="action dimension")
        figure.colorbar(picture, ax=axes, label="action")
