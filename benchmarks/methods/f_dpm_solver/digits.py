"""Samplers on a network that draws digits: quality and error at equal network calls."""

from functools import partial

from benchmarks.experiments import Experiment, FigureSpec, Metric, Variant
from benchmarks.methods.f_dpm_solver.competitors import TITLES
from benchmarks.methods.f_dpm_solver.figures import calls_figure

CALLS = (4, 5, 6, 8, 10)
FRECHET = "frechet_classifier_features"
CONVERGED = f"test/reference/{FRECHET}"


def measured(metric: str, calls: int) -> str:
    return f"test/{{row}}/nfe_{calls}/{metric}"


def experiment(name: str, title: str, sigma_max: float, sigma_min: float) -> Experiment:
    return Experiment(
        name=name,
        title=title,
        description=(
            "A residual network of 286 thousand parameters with EDM's preconditioning learns scikit-learn's digits, 3 000 steps of "
            "128, weights averaged. Then every sampler makes 2 000 images from the same noise with the same network, on EDM's grid "
            f"of noise levels from {sigma_max:g} to {sigma_min:g}; network calls are counted. The distance is Fréchet's from the "
            "training images in the features of a small classifier trained on them, which is not the Inception distance; the error "
            "is that to the solution which all samplers converge to. A method with two calls a step makes half as many steps."
        ),
        variants={"digits": Variant("digits", "configs/f_dpm_solver/digits.yaml")},
        rows=TITLES,
        metrics=(
            *(Metric(measured(FRECHET, calls), f"Fréchet distance, {calls} calls") for calls in CALLS),
            *(Metric(measured("rmse_to_reference", calls), f"error, {calls} calls") for calls in CALLS),
        ),
        steps=3_000,
        overrides={
            "model.init_args.samplers": list(TITLES),
            "model.init_args.sigma_max": sigma_max,
            "model.init_args.sigma_min": sigma_min,
        },
        curve=(*(measured(metric, calls) for metric in ("mmd", "calls") for calls in CALLS), CONVERGED, "test/reference/mmd"),
        seed_options=("seed_everything", "data.init_args.seed"),
        figures=(
            FigureSpec(
                name,
                "Quality of the images and distance from the converged solution, against network calls; mean of the seeds.",
                partial(
                    calls_figure,
                    panels={
                        "Fréchet distance of classifier features": FRECHET,
                        "RMSE to the converged solution": "rmse_to_reference",
                    },
                    levels={"Fréchet distance of classifier features": CONVERGED},
                ),
            ),
        ),
    )


DIGITS = experiment("digits", "Drawing 8 x 8 digits with few network calls", 20.0, 0.02)
DIGITS_EDM_RANGE = experiment("digits_80", "The same on EDM's own range of noise levels", 80.0, 0.002)
