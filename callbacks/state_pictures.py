"""Pictures of a state: a sketch where it is known what the numbers mean, bars everywhere else."""

import math
from typing import TYPE_CHECKING

from torch import Tensor

from callbacks.figure_style import PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROD, MOTION, BARS = "#404040", PALETTE[1], PALETTE[0]
ARC_SECONDS = 1 / 3
MANY = 24


def draw_state(axes: "Axes", state: Tensor, env_id: str, low: Tensor, high: Tensor) -> None:
    """Draw one state.

    A pendulum is drawn as Gymnasium does, with an arrow along the way that it makes in a third of a second at its velocity. Of any
    other state each number is a bar between its lowest and its highest value.

    Args:
        axes: an empty panel.
        state: observation, ``[n]``.
        env_id: environment, such as ``gym:Pendulum-v1``.
        low, high: range of each number, ``[n]``.
    """
    if env_id.removeprefix("gym:") == "Pendulum-v1":
        _draw_pendulum(axes, *state.tolist())
    else:
        _draw_bars(axes, state, low, high)


def _draw_pendulum(axes: "Axes", upright: float, sideways: float, velocity: float) -> None:
    """Draw a rod at the angle with this cosine and sine, 0 upright, and its velocity in rad/s, both anticlockwise."""
    from matplotlib.patches import Circle, FancyArrowPatch

    axes.add_patch(Circle((0, 0), 1.0, facecolor="none", edgecolor="#D0D0D0", linewidth=0.8))
    axes.plot([0, -sideways], [0, upright], color=ROD, linewidth=4, solid_capstyle="round")
    axes.plot(0, 0, marker="o", color="white", markeredgecolor=ROD, markersize=4)
    start, turn = math.atan2(upright, -sideways), ARC_SECONDS * velocity
    steps = [start + turn * k / 20 for k in range(21)]
    if abs(turn) > math.radians(6):
        axes.plot([1.2 * math.cos(a) for a in steps], [1.2 * math.sin(a) for a in steps], color=MOTION, linewidth=1.6)
    tips = [(1.2 * math.cos(a), 1.2 * math.sin(a)) for a in (steps[-1] - math.copysign(0.05, turn), steps[-1])]
    axes.add_patch(FancyArrowPatch(*tips, arrowstyle="-|>", mutation_scale=9, color=MOTION, linewidth=0, shrinkA=0, shrinkB=0))
    axes.text(0, -1.62, f"{round(velocity, 1) + 0.0:+.1f} rad/s", ha="center", va="center", fontsize=8, color=MOTION)
    axes.set(xlim=(-1.5, 1.5), ylim=(-1.85, 1.5), aspect="equal")
    axes.set_axis_off()


def _draw_bars(axes: "Axes", state: Tensor, low: Tensor, high: Tensor) -> None:
    """Draw each number as a bar from its lowest value, at the left edge, towards its highest, at the right edge; s1 on top."""
    size = len(state)
    places = range(1, size + 1)
    width = (high - low).clamp_min(1e-12)
    axes.barh(places, [1.0] * size, height=0.8, color="#E8E8E8")
    axes.barh(places, ((state - low) / width).clamp(0, 1).tolist(), height=0.8, color=BARS)
    if size <= MANY:
        axes.set_yticks(places, [f"s{place}" for place in places], fontsize=min(8.0, 60 / size))
    else:
        axes.set_yticks([1, size], ["s1", f"s{size}"], fontsize=8)
    axes.set_xticks([0, 1], ["min", "max"], fontsize=7)
    axes.tick_params(length=0, pad=1)
    axes.set(xlim=(0, 1), ylim=(size + 0.6, 0.4))
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
