"""What cancellation does inside the network."""

from functools import partial

from benchmarks.calculations.cancellation import DATASET, DEPTHS, EPOCHS, cancellation
from benchmarks.experiments import Calculation, FigureSpec, Metric
from benchmarks.figures import growth_figure

Y_LABELS = {
    "parallel": "share of a message along its receiver",
    "energy": "Dirichlet energy after transport",
}
CAPTIONS = {
    "parallel": "What neighbours repeat in the last layer, against depth.",
    "energy": "How much neighbours differ after the last layer, against depth; 0 is oversmoothed.",
}


def against_depth(metric: str) -> FigureSpec:
    draw = partial(growth_figure, metric=metric, x_label="layers", y_label=Y_LABELS[metric])
    return FigureSpec(f"depth_{metric}", CAPTIONS[metric], draw)


MECHANISM = Calculation(
    name="depth",
    title="Cancellation and depth",
    description=(
        f"GESC with two heads of 32 on {DATASET.capitalize()}, the same strength in all layers, {EPOCHS} epochs, after the last; "
        "columns for the deepest network."
    ),
    titles={"s_0": "s = 0", "s_1": "s = 1", "s_1.5": "s = 1.5"},
    metrics=(
        Metric(f"parallel_at_{DEPTHS[-1]}", f"parallel share, {DEPTHS[-1]} layers"),
        Metric(f"energy_at_{DEPTHS[-1]}", f"Dirichlet energy, {DEPTHS[-1]} layers"),
        *(Metric(f"accuracy_at_{depth}", f"test accuracy, {depth} layers", percent=True) for depth in DEPTHS),
    ),
    compute=cancellation,
    figures=tuple(map(against_depth, Y_LABELS)),
    resumable=True,
)
