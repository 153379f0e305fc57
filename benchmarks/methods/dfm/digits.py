"""Digits of four levels of grey, with trained networks."""

from functools import partial

from benchmarks.experiments import Experiment, FigureSpec, Metric, Variant
from benchmarks.methods.dfm.figures import cost_figure
from benchmarks.methods.dfm.samplers import COST, SAMPLERS, SOURCES

COMPARED = ("euler", "tc", "lc", "lc_8", "theta_trap")
CALLS = (8, 16, 32)
DISTANCE = "frechet_classifier_features"
CONFIGS = {"mask": "configs/dfm/digits.yaml", "uniform": "configs/dfm/digits_uniform.yaml"}
UNHELPFUL = {
    "mask": " Some corrections do not help here: with few steps TC leaves more masks than Euler to the last draw, and LC repairs "
    "one jump of many.",
    "uniform": "",
}


def digits(source: str, title: str) -> Experiment:
    """Samplers with networks that were trained with one source."""
    return Experiment(
        name=f"digits_{source}",
        title=f"8 x 8 digits of four levels of grey, trained networks, {title}: Fréchet distance of classifier features",
        description=(
            "A residual perceptron is trained on scikit-learn's digits, 64 tokens each; 4 000 samples are compared with the "
            "training images in the last features of a small classifier, which is not the Inception distance. 500 test images have "
            f"the distance in the last column.{UNHELPFUL[source]} {COST}"
        ),
        variants={source: Variant(title, CONFIGS[source])},
        rows={name: SAMPLERS[name] for name in COMPARED},
        metrics=(
            *(Metric(f"test/{{row}}/calls_{calls}/{DISTANCE}", f"Fréchet distance, {calls} calls") for calls in CALLS),
            Metric("test/{row}/calls_16/evals_per_sample", "evaluations a sample, 16 calls, with the last draw"),
            Metric(f"test/held_out/{DISTANCE}", "test images"),
        ),
        steps=1_500,
        seed_options=("seed_everything", "data.init_args.seed"),
        curve=(
            *("test/loss", "test/elbo_nats"),
            *(f"test/{{row}}/calls_{calls}/{metric}" for calls in CALLS for metric in ("bigram_tv", "evals_per_sample")),
        ),
        figures=(
            FigureSpec(
                f"digits_{source}",
                "Fréchet distance of samples in the features of a classifier.",
                partial(cost_figure, metric=DISTANCE, y_label="Fréchet distance of classifier features", source=source),
            ),
        ),
    )


DIGITS = tuple(digits(source, title) for source, title in SOURCES.items())
