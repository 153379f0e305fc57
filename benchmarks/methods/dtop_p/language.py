"""Language models whose tokens use equally many experts in the mean, by different rules."""

from functools import partial

from benchmarks.experiments import Experiment, FigureSpec, Metric, Value, Variant
from benchmarks.figures import learning_curve_figure
from benchmarks.methods.dtop_p.figures import heat_map_figure, profile_figure

ACTIVE, LOSS, THRESHOLD = "train/active", "val/loss", "moe/p"
ACTIVE_LAYER, THETA_LAYER, TEST_LAYER = "moe/active_layer", "moe/theta_layer", "test/active_layer"
LAYERS = 4


def arm(title: str, name: str = "", **options: Value) -> Variant:
    overrides = {f"model.init_args.{option}": value for option, value in options.items()}
    return Variant(title, f"configs/dtop_p/shakespeare{name}.yaml", overrides)


def curve(name: str, metric: str, caption: str, y_label: str) -> FigureSpec:
    return FigureSpec(name, caption, partial(learning_curve_figure, metric=metric, x_label="optimiser steps", y_label=y_label))


LANGUAGE = Experiment(
    name="austen",
    title="Characters of Jane Austen, 1 000 steps",
    description=(
        "Decoders with 4 blocks of width 64 and 16 experts of width 32, 16 windows of 64 characters a step; 4 experts a token are "
        "wanted. Four novels are trained on, Persuasion validates and Northanger Abbey tests. Equal data, steps and learning "
        "rate, none tuned. Operations are matched where the mean number of active experts is within 1 % of 4 over training and "
        "within 3 % in the test; a fixed threshold is shown with what it really uses. The spread is the standard deviation over "
        "the tokens of a layer. Letters that begin a word, that go on with one, and other characters are counted apart."
    ),
    variants={
        "dtopp": arm("DTop-p"),
        "dtopp_layer": arm("DTop-p, a threshold a layer", "_layer"),
        "dtopp_z": arm("DTop-p with z-loss", router_z=1e-3),
        "topk": arm("Top-k", "_topk"),
        "topk_drn": arm("Top-k, standardised logits", "_topk_drn"),
        "topp": arm("Top-p, p = 0.4", "_topp"),
        "topp_oracle": arm("Top-p, p = 0.66, where the control below ended", "_topp", p_init=0.66),
        "pi": arm("controlled p alone", "_pi"),
        "drn": arm("standardised logits alone", "_drn"),
        "dense": arm("dense", "_dense"),
    },
    metrics=(
        Metric("test/loss", "test loss (nats a character)"),
        Metric("test/train_active", "experts in training", optional=True),
        Metric("test/active", "in the test", optional=True),
        Metric("test/active_std", "spread over tokens", optional=True),
        Metric("test/flops_matched", "runs with matched operations", percent=True, optional=True),
        Metric("test/active_word_start", "experts of a first letter", optional=True),
        Metric("test/active_word_inside", "of a later letter", optional=True),
        Metric("test/active_elsewhere", "of other characters", optional=True),
    ),
    steps=1_000,
    overrides={"data.init_args.source": "austen"},
    seed_options=("seed_everything", "data.init_args.seed"),
    curve=tuple(f"{TEST_LAYER}{layer}" for layer in range(LAYERS)),
    learning_curve=(
        *(ACTIVE, LOSS, THRESHOLD),
        *(f"{ACTIVE_LAYER}{layer}" for layer in range(LAYERS)),
        *(f"{THETA_LAYER}{layer}" for layer in (0, LAYERS - 1)),
    ),
    figures=(
        curve("active", ACTIVE, "Active experts while the models train; 4 are wanted.", "active experts a token"),
        curve("threshold", THRESHOLD, "The probability mass that the controllers ask for.", "threshold p"),
        curve("loss", LOSS, "Validation loss while the models train.", "validation loss (nats)"),
        FigureSpec(
            "depth",
            "Active experts of each layer in the test.",
            partial(profile_figure, metric=TEST_LAYER, first=1, x_label="layer", y_label="active experts a token"),
        ),
        FigureSpec(
            "depth_steps",
            "Active experts of each layer while DTop-p trains.",
            partial(heat_map_figure, variant="dtopp", metric=ACTIVE_LAYER, layers=LAYERS),
        ),
        *(
            curve(f"theta_{layer + 1}", f"{THETA_LAYER}{layer}", f"Scale θ of the logits of layer {layer + 1}.", "scale θ")
            for layer in (0, LAYERS - 1)
        ),
    ),
)
