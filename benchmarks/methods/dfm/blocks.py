"""The paper's blocks of three tokens, where the law of a sampler's output can be computed: a perfect network and trained ones."""

from functools import partial

from benchmarks.calculations.flow_samplers import BLOCK_DELTA, block_errors
from benchmarks.experiments import Calculation, Experiment, FigureSpec, Metric, Variant
from benchmarks.methods.dfm.figures import cost_figure
from benchmarks.methods.dfm.samplers import COST, SAMPLERS, SOURCES, titles

ALL = ("tau_leaping", "tau_categorical", "euler", "tc", "lc", "theta_rk2", "theta_trap")
TRAINED_CALLS = (4, 8, 16)

EXACT = Calculation(
    name="exact_blocks",
    title="Blocks of three tokens, perfect network: exact laws",
    description=(
        f"A block has 8³ states; kappa is linear, grids end at t = {1 - BLOCK_DELTA:g} in equal steps of log(1 - t). Shown is the "
        "total variation of the exact law of the samples, computed without sampling, from the true law at that time, at equal "
        f"numbers of network calls. {COST}"
    ),
    titles=titles(*ALL),
    metrics=(
        Metric("tv_at_4", "total variation, 4 calls"),
        Metric("tv_at_8", "8 calls"),
        Metric("tv_at_16", "16 calls"),
        Metric("tv_at_32", "32 calls"),
        Metric("evals_at_8", "evaluations a sample, 8 calls"),
        Metric("data_tv_at_8", "from the data, 8 calls"),
    ),
    compute=block_errors,
    figures=(
        FigureSpec(
            "exact_tv",
            "Total variation of the exact law of samples from the true one: LC has order two for masks.",
            partial(cost_figure, metric="tv", y_label="total variation"),
        ),
        FigureSpec(
            "exact_kl",
            "Divergence of the exact law of samples from the true one.",
            partial(cost_figure, metric="kl", y_label="divergence (nats)"),
        ),
        FigureSpec(
            "exact_data_tv",
            "Total variation from the data, after masks are filled; the early end leaves 0.024 for uniform noise.",
            partial(cost_figure, metric="data_tv", y_label="total variation from the data"),
        ),
    ),
)


def trained(source: str, title: str) -> Experiment:
    """All samplers with networks that were trained with one source."""
    return Experiment(
        name=f"trained_blocks_{source}",
        title=f"Blocks of three tokens, trained networks, {title}: total variation from the data",
        description=(
            "A perceptron with three hidden layers of 128 learns the posterior from fresh blocks, 512 a step, with the bound of "
            "the likelihood as its loss; then the exact law of each sampler with this network is compared with the data, after "
            f"masks are filled. {COST}"
        ),
        variants={source: Variant(title, f"configs/dfm/blocks_{source}.yaml")},
        rows={name: SAMPLERS[name] for name in ALL},
        metrics=(
            *(Metric(f"test/{{row}}/calls_{calls}/exact_tv", f"total variation, {calls} calls") for calls in TRAINED_CALLS),
            Metric("test/{row}/calls_8/evals_per_sample", "evaluations a sample, 8 calls, with the last draw"),
        ),
        steps=2_000,
        seed_options=("seed_everything", "data.init_args.seed"),
        curve=(
            *("test/elbo_nats", "test/posterior_error"),
            *(f"test/{{row}}/calls_{calls}/{metric}" for calls in TRAINED_CALLS for metric in ("exact_kl", "evals_per_sample")),
        ),
        figures=(
            FigureSpec(
                f"trained_blocks_{source}",
                "Total variation from the data with trained networks, whose own error is the floor.",
                partial(cost_figure, metric="exact_tv", y_label="total variation from the data", source=source),
            ),
        ),
    )


BLOCKS = tuple(trained(source, title) for source, title in SOURCES.items())
