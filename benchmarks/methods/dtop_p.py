"""Language models whose tokens use equally many experts in the mean, by different rules."""

from functools import partial

from benchmarks.experiments import Experiment, FigureSpec, Metric, Variant
from benchmarks.figures import learning_curve_figure

ACTIVE, LOSS = "train/active", "val/loss"


def arm(title: str, name: str = "") -> Variant:
    return Variant(title, f"configs/dtop_p/shakespeare{name}.yaml")


def curve(name: str, metric: str, caption: str, y_label: str) -> FigureSpec:
    return FigureSpec(name, caption, partial(learning_curve_figure, metric=metric, x_label="optimiser steps", y_label=y_label))


LANGUAGE = Experiment(
    name="shakespeare",
    title="Characters of Shakespeare, 1 500 steps",
    description=(
        "Decoders with 4 blocks of width 64 and 16 experts of width 32, 16 windows of 64 characters a step; 4 experts a token are "
        "wanted. Equal data, steps and learning rate, none tuned. Operations are matched where the mean number of active experts "
        "is within 1 % of 4 over training and within 3 % in the test; a fixed threshold is shown with what it really uses."
    ),
    variants={
        "dtopp": arm("DTop-p"),
        "dtopp_layer": arm("DTop-p, a threshold a layer", "_layer"),
        "topk": arm("Top-k", "_topk"),
        "topk_drn": arm("Top-k, standardised logits", "_topk_drn"),
        "topp": arm("Top-p, p = 0.4", "_topp"),
        "pi": arm("controlled p alone", "_pi"),
        "drn": arm("standardised logits alone", "_drn"),
        "dense": arm("dense", "_dense"),
    },
    metrics=(
        Metric("test/loss", "test loss (nats a character)"),
        Metric("test/train_active", "active experts in training"),
        Metric("test/active", "in the test"),
        Metric("test/flops_matched", "runs with matched operations", percent=True),
    ),
    steps=1_500,
    seed_options=("seed_everything", "data.init_args.seed"),
    learning_curve=(ACTIVE, LOSS),
    figures=(
        curve("active", ACTIVE, "Active experts while the models train; 4 are wanted.", "active experts a token"),
        curve("loss", LOSS, "Validation loss while the models train.", "validation loss (nats)"),
    ),
)

EXPERIMENTS = (LANGUAGE,)
