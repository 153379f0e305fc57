"""Diffusion transformers whose patches use equally many experts in the mean, by different rules."""

from functools import partial

from benchmarks.experiments import Experiment, FigureSpec, Metric, Variant
from benchmarks.methods.dtop_p.figures import profile_figure

TENTHS = 10
LOSS, ACTIVE = "test/loss_decile", "test/active_decile"


def arm(title: str, name: str = "") -> Variant:
    return Variant(title, f"configs/dtop_p/digits_dit{name}.yaml")


def tenths(name: str, metric: str, caption: str, y_label: str) -> FigureSpec:
    x_label = "tenth of the time, from image to noise"
    return FigureSpec(name, caption, partial(profile_figure, metric=metric, first=1, x_label=x_label, y_label=y_label))


IMAGES = Experiment(
    name="digits",
    title="Diffusion of 8 x 8 digits, 1 000 steps",
    description=(
        "Diffusion transformers with 4 blocks of width 64 and 16 experts of width 32, trained by rectified flow on scikit-learn's "
        "digits, weights averaged; 4 experts a patch are wanted. Equal data, steps and learning rate, none tuned. The accuracy is "
        "that of a small classifier, trained on the same images, on 500 samples of given classes; the distance is Fréchet's in its "
        "last features, which is not the Inception distance."
    ),
    variants={
        "dtopp": arm("DTop-p"),
        "topk": arm("Top-k", "_topk"),
        "topp": arm("Top-p, p = 0.4", "_topp"),
        "dense": arm("dense", "_dense"),
    },
    metrics=(
        Metric("test/loss", "test loss of the flow"),
        Metric("test/train_active", "experts in training", optional=True),
        Metric("test/active", "in the test", optional=True),
        Metric("test/flops_matched", "runs with matched operations", percent=True, optional=True),
        Metric("test/sample_accuracy", "samples of the right class", percent=True),
        Metric("test/frechet_classifier_features", "Fréchet distance of classifier features"),
    ),
    steps=1_000,
    seed_options=("seed_everything", "data.init_args.seed"),
    curve=tuple(f"{name}{tenth}" for name in (LOSS, ACTIVE) for tenth in range(TENTHS)),
    figures=(
        tenths("digits_active", ACTIVE, "Active experts over the time of the diffusion.", "active experts a patch"),
        tenths("digits_loss", LOSS, "Test loss over the time of the diffusion.", "loss of the flow"),
    ),
)
