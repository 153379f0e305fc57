"""Pictures of disturbed runs: what it cost and how long, and where the liar stands among the agents."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from callbacks.figure_style import PALETTE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNDISTURBED_COLOUR, COLOURS = "#000000", PALETTE[:-1]
DASHES = ("-", "--", "-.", ":")
MAX_BARS = 25


def solved_figure(solved: Mapping[str, Tensor], windows: Mapping[str, tuple[int, int]]) -> "Figure":
    """Draw the share of solved samples against the iteration, and below when each intervention acts.

    Args:
        solved: share after each iteration, ``[K]``, by name; the first is the undisturbed run.
        windows: first and last iteration of each intervention, by name; bars, since windows overlap.
    """
    from matplotlib.figure import Figure

    steps = len(next(iter(solved.values())))
    figure = Figure(figsize=(7.5, 3.6 + 0.24 * len(windows)), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3.2, 0.3 + 0.28 * len(windows)])
    iterations = range(1, steps + 1)
    undisturbed, *others = solved
    above.plot(iterations, solved[undisturbed].numpy(), color=UNDISTURBED_COLOUR, label="undisturbed", linewidth=2.6, alpha=0.6)
    for place, name in enumerate(others):
        colour = COLOURS[place % len(COLOURS)]
        above.plot(iterations, solved[name].numpy(), color=colour, linestyle=DASHES[place % len(DASHES)], label=name)
        first, last = windows[name]
        below.broken_barh([(first - 0.5, last - first + 1)], (place - 0.35, 0.7), color=colour)
    above.set(ylim=(-0.02, 1.02), ylabel="share of samples solved", title="solved rate under interventions")
    above.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    below.set_yticks(range(len(others)), others)
    below.set(xlim=(0.5, steps + 0.5), ylim=(len(others) - 0.5, -0.5), xlabel="iteration", title="when each one acts")
    below.title.set_fontsize(10)
    return figure


def liar_figure(ranks: Mapping[str, Tensor], num_agents: int) -> "Figure":
    """Draw how often the liar has which rank among the agents, by its disagreement memory and by the change of that.

    With more than ``MAX_BARS`` agents a bar counts several neighbouring ranks.

    Args:
        ranks: the liar's ranks in S samples, 1 for the largest, by ``|u|`` and by its change, ``[2, S]``, by name.
        num_agents: number of agents.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(4.6 * len(ranks), 5.6), 3.6), layout="constrained")
    kinds: dict[str, dict[str, Any]] = {
        "by |u|": {"color": PALETTE[0]},
        "by the change of |u| (oracle)": {"color": PALETTE[1], "hatch": "///", "alpha": 0.6},
    }
    width = -(-num_agents // MAX_BARS)
    edges = torch.arange(0.5, num_agents + width, width)
    for axes, (name, ranks_2S) in zip(figure.subplots(1, len(ranks), squeeze=False)[0], ranks.items(), strict=True):
        for (label, look), ranks_S, side in zip(kinds.items(), ranks_2S, (0.3, 0.7), strict=True):
            share = torch.histogram(ranks_S.float(), edges).hist / len(ranks_S)
            first = (ranks_S == 1).float().mean()
            places = (edges[:-1] + side * width).numpy()
            axes.bar(places, share.numpy(), width=0.4 * width, label=f"{label}: first in {first:.0%}", **look)
        axes.axhline(width / num_agents, color="black", linestyle=":", label=f"chance: first in {1 / num_agents:.1%}")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set(xlabel=f"rank of the liar among {num_agents} agents", ylabel="share of samples", title=name)
        axes.legend(fontsize=9)
    return figure
