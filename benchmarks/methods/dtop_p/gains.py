"""Which gains hold the number of experts on a network that learns, beside what a linear plant predicts."""

from itertools import product

from benchmarks.calculations.controller_gains import INTEGRAL, LAST, PROPORTIONAL, STEPS, gain_response, name_of
from benchmarks.experiments import Calculation, FigureSpec, Metric
from benchmarks.methods.dtop_p.figures import gain_map_figure

GAINS = Calculation(
    name="gains",
    title="Gains of the controller",
    description=(
        f"The model of `configs/dtop_p/shakespeare.yaml`, {STEPS} steps, for each pair of gains; how far the active experts are "
        f"from 4 over the last {LAST} steps. The spectral radius is that of the linear plant with the gain that Gaussian logits "
        "have at the start; above 1 it predicts that the error grows until a bound stops it."
    ),
    titles={name_of(kp, ki): f"K_p = {kp:g}, K_i = {ki:g}" for kp, ki in product(PROPORTIONAL, INTEGRAL)},
    metrics=(
        Metric("radius", "predicted spectral radius"),
        Metric("deviation", "deviation (experts, root mean square)"),
        Metric("offset", "mean minus 4 (experts)"),
    ),
    compute=gain_response,
    figures=(FigureSpec("gains", "Deviation from 4 experts over the gains; a linear plant says where it grows.", gain_map_figure),),
    resumable=True,
    detail=True,
)
