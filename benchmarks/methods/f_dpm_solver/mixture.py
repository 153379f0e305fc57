"""Samplers on a Gaussian mixture, whose exact flow is known."""

from benchmarks.calculations.sampler_errors import CALLS, MEAN, NARROW, SIGN_CALLS, WIDE, error_signs, sampler_errors
from benchmarks.experiments import Calculation, FigureSpec, Metric
from benchmarks.methods.f_dpm_solver.competitors import TITLES
from benchmarks.methods.f_dpm_solver.figures import error_figure, signed_error_figure

MIXTURE = Calculation(
    name="mixture",
    title="Six Gaussians on a ring, with the exact network",
    description=(
        f"Root mean square error of {NARROW.points:,} points against the exact flow, which 1 500 steps of Runge-Kutta in double "
        f"precision follow, on EDM's grid of noise levels from {NARROW.sigma_max:g} to {NARROW.sigma_min:g}; standard deviation "
        f"{NARROW.std:g} of each Gaussian; a seed is another initial noise. The data prediction is exact, and smooth in two "
        "dimensions: here high order pays from 8 to 10 network calls on. A method with two calls a step makes half as many steps."
    ),
    titles=TITLES,
    metrics=tuple(Metric(f"rmse_at_{calls}", f"error, {calls} calls") for calls in CALLS),
    compute=sampler_errors,
    figures=(FigureSpec("mixture", "Error against network calls; mean of the seeds.", error_figure),),
)

SIGNS = Calculation(
    name="signs",
    title="The sign of the error",
    description=(
        f"Gaussians of standard deviation {WIDE.std:g} and noise levels with even logarithms from {WIDE.sigma_max:g} to "
        f"{WIDE.sigma_min:g}, {WIDE.points} points. The cosine is that of the errors of all points with those of DDIM. Both "
        "methods are of first order with opposite leading errors, so the mean of what they find is of second order."
    ),
    titles={"ddim": TITLES["ddim"], "f_dpm": TITLES["f_dpm"], MEAN: "mean of the two"},
    metrics=(
        *(Metric(f"rmse_at_{calls}", f"error, {calls} steps") for calls in SIGN_CALLS),
        *(Metric(f"cosine_at_{calls}", f"cosine, {calls} steps") for calls in SIGN_CALLS),
    ),
    compute=error_signs,
    figures=(
        FigureSpec(
            "signs",
            "Errors of F-DDIM are those of DDIM with the other sign: each coordinate of the points.",
            signed_error_figure,
        ),
    ),
)
