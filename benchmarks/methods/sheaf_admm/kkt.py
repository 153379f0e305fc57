"""Exact coordination: how far ADMM is from the KKT point of a small problem."""

from functools import partial

from benchmarks.calculations.kkt_convergence import METRIC, kkt_errors
from benchmarks.experiments import Calculation, FigureSpec, Metric
from benchmarks.figures import convergence_figure

KKT = Calculation(
    name="kkt",
    title="Exact coordination: distance to the KKT point",
    description=(
        "Five agents in a chain (d_v = 4, d_e = 2) with random objectives and restriction maps; 100 iterations with the hard "
        "z-update, five steps of conjugate gradients each (float64, shift ε = 0; the default ε = 1e-5 would end near 1e-6). "
        "Relative error ‖x − x*‖ / ‖x*‖ against the solution of the KKT system."
    ),
    titles={"dual": "start = dual (default)", "zero": "start = zero", "released": "start = released"},
    metrics=(Metric(METRIC, "error after 100 iterations"),),
    compute=kkt_errors,
    figures=(
        FigureSpec(
            "kkt",
            "Distance to the KKT point for three starts of the conjugate gradients.",
            partial(
                convergence_figure,
                metric=METRIC,
                x_label="ADMM iteration k",
                y_label="relative error ‖x$^k$ − x*‖ / ‖x*‖",
            ),
        ),
    ),
)
