"""Agents with and without R2R2 at a laptop's scale: many updates for each step, and whether the agents learn at all."""

from functools import partial

from benchmarks.experiments import Experiment, FigureSpec, Metric, Value, Variant
from benchmarks.figures import learning_curve_figure

LEARNING = {
    "val/return_mean": "return of 5 episodes",
    "repr/effective_rank": "effective rank of Z",
    "repr/effective_rank_centered": "effective rank of Z minus its mean",
}
AGENT_STEPS = 3_500


def curve(experiment: str, metric: str) -> FigureSpec:
    draw = partial(learning_curve_figure, metric=metric, x_label="environment steps", y_label=LEARNING[metric])
    return FigureSpec(f"{experiment}_{metric.split('/')[1]}", f"The {LEARNING[metric]} while the agents learn.", draw)


def agent(title: str, arm: str = "", **options: Value) -> Variant:
    """An arm of the config with 20 updates a step, with other settings of the model."""
    overrides = {f"model.init_args.{key}": value for key, value in options.items()}
    return Variant(title, f"configs/r2r2/halfcheetah_utd20{arm}.yaml", overrides)


UTD = Experiment(
    name="halfcheetah_utd",
    title=f"HalfCheetah-v5 after {AGENT_STEPS:,} steps".replace(",", " "),
    description=(
        "TD7 with 64 units and features, batches of 64, one or 20 updates a step after 500 random steps; the settings are those of "
        "the papers, none was tuned. The checkpoint with the best mean return of five evaluation episodes is tested on 20 others. "
        "Effective ranks are those of the last agent's features of its newest 2 000 states."
    ),
    variants={
        "td7_utd1": agent("TD7, 1 update", "_td7", utd=1),
        "r2r2_utd1": agent("TD7+R2R2, 1 update", utd=1),
        "td7": agent("TD7, 20 updates", "_td7"),
        "r2r2": agent("TD7+R2R2, 20 updates"),
        "centred": agent("centred (VICReg), 20 updates", "_centred"),
        "no_rr": agent("without L_RR, 20 updates", "_no_rr"),
        "no_var": agent("without L_Var, 20 updates", "_no_var"),
        "ln": agent("TD7+LN, 20 updates", "_ln"),
        "ln_r2r2": agent("TD7+LN+R2R2, 20 updates", "_ln_r2r2"),
    },
    metrics=(
        Metric("test/return_mean", "return of 20 test episodes"),
        Metric("test/return_mean", "the same", interval="iqm"),
        *(Metric(f"{metric}_at_{AGENT_STEPS}", title) for metric, title in LEARNING.items() if metric.startswith("repr/")),
    ),
    steps=AGENT_STEPS,
    steps_option="data.init_args.total_env_steps",
    seed_options=("seed_everything", "data.init_args.seed"),
    learning_curve=tuple(LEARNING),
    figures=tuple(curve("halfcheetah_utd", metric) for metric in LEARNING),
)

PENDULUM = Experiment(
    name="pendulum",
    title="Pendulum-v1 after 5 000 steps, one update a step",
    description=(
        "Whether the agents learn at all. TD7 and SimbaV2 have their own widths and batches, so the two are not compared with each "
        "other; 20 test episodes."
    ),
    variants={
        "td7": Variant("TD7", "configs/r2r2/td7_pendulum_baseline.yaml"),
        "r2r2": Variant("TD7+R2R2", "configs/r2r2/td7_pendulum.yaml"),
        "simba": Variant("SimbaV2", "configs/r2r2/simba_pendulum.yaml"),
    },
    metrics=(Metric("test/return_mean", "return of 20 test episodes"),),
    steps=5_000,
    steps_option="data.init_args.total_env_steps",
    seed_options=("seed_everything", "data.init_args.seed"),
)

EXPERIMENTS = (UTD, PENDULUM)
