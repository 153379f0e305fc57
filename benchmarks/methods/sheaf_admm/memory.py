"""What unrolling costs in memory, with and without activation checkpointing."""

from functools import partial

from benchmarks.calculations.activation_memory import BATCH, METRIC, SIDE, peak_memory
from benchmarks.experiments import Calculation, FigureSpec, Metric
from benchmarks.figures import growth_figure

MEMORY = Calculation(
    name="memory",
    title="Memory of a training step against K",
    description=(
        "One forward and backward pass of the paper's maze model (d_v = 10, d_e = 5, LoRA rank 4, five CG steps) on the CPU, "
        f"{BATCH} boards of {SIDE}×{SIDE} pixels: the peak of allocated memory beyond parameters and data."
    ),
    titles={
        "keep": "keep all activations",
        "every_5": "checkpoint_every = 5",
        "every_1": "checkpoint_every = 1",
    },
    metrics=(Metric(f"{METRIC}_at_10", "MiB, K = 10"), Metric(METRIC, "MiB, K = 40")),
    compute=peak_memory,
    figures=(
        FigureSpec(
            "memory",
            "Peak memory of a training step against the number of unrolled iterations.",
            partial(growth_figure, metric=METRIC, x_label="unrolled iterations K", y_label="peak memory of a step (MiB)"),
        ),
    ),
)
