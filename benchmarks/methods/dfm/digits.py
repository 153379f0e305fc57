"""Digits of four levels of grey, with trained networks."""

from functools import partial

from benchmarks.experiments import Experiment, FigureSpec, Metric, Variant
from benchmarks.methods.dfm.figures import cost_figure
from benchmarks.methods.dfm.samplers import COST, SAMPLERS, SOURCES

COMPARED = ("euler", "tc", "lc", "lc_8", "theta_trap")
CALLS = (8, 16, 32)
DISTANCE = "frechet_classifier_features"
CONFIGS = {"mask": "configs/dfm/digits.yaml", "uniform": "configs/dfm/digits_uniform.yaml"}

DIGITS = Experiment(
    name="digits",
    title="8 x 8 digits of four levels of grey, trained networks: Fréchet distance of classifier features",
    description=(
        "A residual perceptron is trained on scikit-learn's digits, 64 tokens each; 4 000 samples are compared with 500 test "
        "images in the last features of a small classifier, which is not the Inception distance. Training images have the distance "
        "in the last column. Some corrections do not help here: for masks and few steps TC leaves more masks than Euler to the "
        f"last draw, and LC repairs one jump of many. {COST}"
    ),
    variants={source: Variant(title, CONFIGS[source]) for source, title in SOURCES.items()},
    metrics=(
        *(Metric(f"test/{name}/calls_8/{DISTANCE}", f"{SAMPLERS[name]}, 8 calls") for name in COMPARED),
        *(Metric(f"test/{name}/calls_32/{DISTANCE}", f"{SAMPLERS[name]}, 32 calls") for name in COMPARED),
        Metric(f"test/training_data/{DISTANCE}", "training images"),
    ),
    steps=1_500,
    seed_options=("seed_everything", "data.init_args.seed"),
    curve=(
        *("test/loss", "test/elbo_nats"),
        *(
            f"test/{name}/calls_{calls}/{metric}"
            for name in COMPARED
            for calls in CALLS
            for metric in (DISTANCE, "bigram_tv", "evals_per_sample")
        ),
    ),
    figures=(
        FigureSpec(
            "digits",
            "Fréchet distance of samples in the features of a classifier.",
            partial(cost_figure, metric=DISTANCE, y_label="Fréchet distance of classifier features"),
        ),
    ),
)
