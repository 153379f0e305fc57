"""R2R2's regulariser on a self-predictive encoder, without an agent: do its features spread over more directions?"""

from functools import partial

from benchmarks.calculations.gradient_shares import gradient_shares
from benchmarks.experiments import Calculation, Experiment, FigureSpec, Metric, Variant
from benchmarks.figures import learning_curve_figure

RANKS = {
    "effective_rank": "effective rank of Z",
    "effective_rank_centered": "of Z minus its mean",
}
PROTOCOL = (
    "TD7's encoder with 64 features learns from 2 000 transitions of a random policy, 3 000 updates with batches of 128, and is "
    "measured on 1 000 transitions of other episodes; every seed has its own transitions and weights. Errors of the ridge "
    "regressions that read state and reward off the features are relative to the targets' variance. Weights of the terms are those "
    "of the paper, none was tuned; the last variant has both ten times as large."
)


def rank_curve(experiment: str, name: str) -> FigureSpec:
    draw = partial(learning_curve_figure, metric=f"val/{name}", x_label="updates", y_label=RANKS[name])
    return FigureSpec(f"{experiment}_{name}", f"How the held-out {RANKS[name]} develops.", draw)


def representation(name: str, env: str) -> Experiment:
    """The encoder of one environment with and without the regulariser."""
    return Experiment(
        name=name,
        title=f"Features of {env} after 3 000 self-predictive updates",
        description=PROTOCOL,
        variants={
            "spl": Variant("self-prediction alone", "configs/r2r2/representation_spl.yaml"),
            "centred": Variant("centred (VICReg)", "configs/r2r2/representation_centred.yaml"),
            "r2r2": Variant("R2R2", "configs/r2r2/representation.yaml"),
            "strong": Variant("R2R2, weights 0.1", "configs/r2r2/representation_strong.yaml"),
        },
        metrics=(
            *(Metric(f"test/{metric}", title) for metric, title in RANKS.items()),
            Metric("test/spl", "self-predictive loss"),
            Metric("test/state_probe", "error of the state"),
            Metric("test/reward_probe", "error of the reward"),
        ),
        steps=3_000,
        overrides={"data.init_args.env": f"gym:{env}"},
        seed_options=("seed_everything", "data.init_args.seed", "data.init_args.generator_seed"),
        learning_curve=tuple(f"val/{metric}" for metric in RANKS),
        figures=tuple(rank_curve(name, metric) for metric in RANKS),
    )


SHARES = Calculation(
    name="gradient_shares",
    title="SimbaV2-SPL: which term pulls at the features",
    description=(
        "Norms of the gradients with respect to the features of a batch (HalfCheetah-v5, d = 128, batch 256, after 200 updates of "
        "encoder and latent model). The official code leaves unit-norm features as they are; `sqrt_dim` multiplies them by √d "
        "within the regulariser."
    ),
    titles={"latent_scale_1": "as in the official code", "latent_scale_sqrt_dim": "latent_scale: sqrt_dim"},
    metrics=(
        Metric("spl", "self-prediction"),
        Metric("rr", "0.01 L_RR"),
        Metric("var", "0.01 L_Var"),
        Metric("rr_to_spl", "L_RR to self-prediction"),
        Metric("var_to_spl", "L_Var to self-prediction"),
    ),
    compute=gradient_shares,
)

EXPERIMENTS = (
    representation("representation", "HalfCheetah-v5"),
    representation("representation_walker", "Walker2d-v5"),
    SHARES,
)
