"""Letters of a known chain, with its true posterior: many tokens, few steps."""

from functools import partial

from benchmarks.calculations.flow_samplers import LETTER_DELTA, SAMPLES, TRUTH, letter_likelihoods
from benchmarks.experiments import Calculation, FigureSpec, Metric
from benchmarks.methods.dfm.figures import cost_figure
from benchmarks.methods.dfm.samplers import COST, SOURCES, titles

LETTERS = Calculation(
    name="letters",
    title="32 letters of a known chain, perfect network: excess negative log-likelihood",
    description=(
        "A first-order chain of a to z and the space, fitted on English; its entropy is 2.321 nats a letter. The network is the "
        f"true posterior. Grids end at t = {1 - LETTER_DELTA:g}; {SAMPLES} samples a seed. With far fewer steps than letters LC "
        f"repairs one jump of many: for masks it is worse than Euler here, and TC too. {COST}"
    ),
    titles={
        **titles("euler", "tc", "lc", "lc_4", "theta_rk2", "theta_trap"),
        **{f"{source}_{TRUTH}": f"{kind}: true law at the end of the grid" for source, kind in SOURCES.items()},
    },
    metrics=(
        *(Metric(f"excess_at_{calls}", f"nats a letter, {calls} calls") for calls in (8, 16, 32, 64)),
        *(Metric(f"evals_at_{calls}", f"evaluations a sample, {calls} calls") for calls in (8, 32)),
    ),
    compute=letter_likelihoods,
    figures=(
        FigureSpec(
            "letters",
            "Excess negative log-likelihood of samples of 32 letters.",
            partial(cost_figure, metric="excess", y_label="excess (nats a letter)", floor=TRUTH),
        ),
    ),
    resumable=True,
)
