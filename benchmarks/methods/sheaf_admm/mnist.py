"""MNIST digits under padding, dropout and noise: Sheaf-ADMM in three modes against message passing and convolutional networks."""

from functools import partial

from benchmarks.experiments import Experiment, FigureSpec, Metric, Tuning, Variant
from benchmarks.figures import horizon_figure, severity_figure

CONFIGS = "configs/sheaf_admm"
TRAINED_HORIZONS = (6, 12)
EVAL_HORIZON = 32
OTHER_HORIZONS = (8, 16, 64)
CORRUPTIONS = {
    "padding (px a side)": {0.0: "clean", 2.0: "pad2", 4.0: "pad4", 8.0: "pad8"},
    "lost patches (%)": {0.0: "clean", 10.0: "drop10", 30.0: "drop30"},
    "noise (standard deviation)": {0.0: "clean", 0.1: "noise0.1", 0.2: "noise0.2"},
}


def _accuracy(suite: str) -> str:
    """Name of the accuracy on a suite."""
    return "test/accuracy" if suite == "clean" else f"test/{suite}/accuracy"


SUITES = tuple(dict.fromkeys(suite for panel in CORRUPTIONS.values() for suite in panel.values()))
PANELS = {"clean": "clean", "padding 4 px": "pad4", "padding 8 px": "pad8", "30 % lost": "drop30"}

MNIST = Experiment(
    name="mnist",
    title="MNIST 14×14: robustness",
    description=(
        "Images shrunk to 14×14 pixels; all models see clean images only in training, for equal steps and batches, and have about "
        "30 000 parameters; the learning rate is tuned for each over the same grid on clean images. Agents coordinate for "
        f"K = {EVAL_HORIZON} iterations in the table (trained with K from 6 to 12), and for other K in the figure."
    ),
    variants={
        "released": Variant("Sheaf-ADMM, hard, start = released", f"{CONFIGS}/mnist.yaml"),
        "dual": Variant("Sheaf-ADMM, hard, start = dual", f"{CONFIGS}/mnist_dual.yaml"),
        "soft": Variant("Sheaf-ADMM, soft", f"{CONFIGS}/mnist_soft.yaml"),
        "mpnn": Variant("MPNN, mean, pooled read-out", f"{CONFIGS}/mnist_mpnn.yaml"),
        "cnn": Variant("CNN", f"{CONFIGS}/mnist_cnn.yaml"),
        "cnn_invariant": Variant("CNN, global maximum", f"{CONFIGS}/mnist_cnn_invariant.yaml"),
    },
    metrics=tuple(Metric(_accuracy(suite), suite, percent=True) for suite in SUITES),
    steps=1500,
    overrides={"data.init_args.generator_seed": 0},
    seed_options=("seed_everything", "data.init_args.seed"),
    curve=tuple(f"{_accuracy(suite)}_at_{k}" for suite in PANELS.values() for k in OTHER_HORIZONS),
    tuning=Tuning({"model.init_args.lr": (1e-3, 2e-3, 4e-3)}, metric="val/accuracy"),
    figures=(
        FigureSpec(
            "mnist",
            "Accuracy against the number of iterations at test time: larger boards need more of them.",
            partial(
                horizon_figure,
                metrics={title: _accuracy(suite) for title, suite in PANELS.items()},
                x_label="iterations K at test time",
                y_label="accuracy",
                trained_at=TRAINED_HORIZONS,
                plain_at=EVAL_HORIZON,
            ),
        ),
        FigureSpec(
            "mnist_robustness",
            f"Accuracy against the severity of a corruption that no model was trained on (K = {EVAL_HORIZON}).",
            partial(
                severity_figure,
                panels={
                    title: {severity: _accuracy(suite) for severity, suite in panel.items()} for title, panel in CORRUPTIONS.items()
                },
                y_label="accuracy",
            ),
        ),
    ),
)
