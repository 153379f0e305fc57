"""Mazes: Sheaf-ADMM against recurrent message passing, on the trained size and on larger ones, and what its parts are good for."""

from functools import partial

from benchmarks.experiments import Experiment, FigureSpec, Metric, Tuning, Value, Variant
from benchmarks.figures import horizon_figure

CONFIGS = "configs/sheaf_admm"
TRAINED_HORIZONS = (8, 16)
OTHER_HORIZONS = (2, 4, 8, 32, 60)
SIZES = {"11×11, as trained": "test/solved", "17×17": "test/1.5x/solved", "21×21": "test/2x/solved"}

SHARED: dict[str, Value] = {
    "data.init_args.generator_seed": 0,
    "model.init_args.eval_horizon": TRAINED_HORIZONS[1],
    "model.init_args.test_horizons": OTHER_HORIZONS,
}
METRICS = (
    Metric("test/solved", "11×11, K = 16", percent=True),
    Metric("test/solved_at_60", "11×11, K = 60", percent=True),
    Metric("test/1.5x/solved_at_32", "17×17, K = 32", percent=True),
    Metric("test/2x/solved_at_32", "21×21, K = 32", percent=True),
    Metric("test/2x/solved_at_60", "21×21, K = 60", percent=True),
)
CURVE = (*SIZES.values(), *(f"{metric}_at_{k}" for metric in SIZES.values() for k in OTHER_HORIZONS))


def _figure(name: str) -> FigureSpec:
    """Share of solved mazes against K, one panel a size."""
    return FigureSpec(
        name,
        "Share of mazes solved exactly against the number of iterations at test time, on the trained size and on larger mazes.",
        partial(
            horizon_figure,
            metrics=SIZES,
            x_label="iterations K at test time",
            y_label="solved mazes",
            trained_at=TRAINED_HORIZONS,
        ),
    )


MAZE = Experiment(
    name="maze",
    title="Mazes 11×11, tested up to 21×21",
    description=(
        "Equal steps, batches and numbers of parameters (within 1 %) for all models; the learning rate is tuned for each over the "
        "same grid. Trained on mazes of 11×11 pixels with K drawn from 8 to 16 in every step; solved means that the marked pixels "
        "are exactly the path."
    ),
    variants={
        "sheaf": Variant("Sheaf-ADMM", f"{CONFIGS}/maze.yaml"),
        "sheaf_cg5": Variant("Sheaf-ADMM, 5 CG steps", f"{CONFIGS}/maze.yaml", {"model.init_args.solver_steps": 5}),
        "mpnn_max": Variant("MPNN, max (paper's kind)", f"{CONFIGS}/maze_mpnn.yaml"),
        "mpnn_mean": Variant("MPNN, mean (paper's kind)", f"{CONFIGS}/maze_mpnn_mean.yaml"),
        "mpnn_slot": Variant("MPNN, direction-routed", f"{CONFIGS}/maze_mpnn_slot.yaml"),
    },
    metrics=METRICS,
    steps=1500,
    overrides=SHARED,
    seed_options=("seed_everything", "data.init_args.seed"),
    curve=CURVE,
    tuning=Tuning({"model.init_args.lr": (1e-3, 2e-3, 4e-3)}, metric="val/open_accuracy"),
    figures=(_figure("maze"),),
)

MAZE_ABLATIONS = Experiment(
    name="maze_ablations",
    title="Mazes: parts of Sheaf-ADMM left out",
    description=(
        "Each variant changes one thing in Sheaf-ADMM; the learning rate is 0.002 for all and 600 steps are trained. "
        "Without talk an agent answers from its own patch: K = 0 in training and in the first column."
    ),
    variants={
        "full": Variant("Sheaf-ADMM: own maps a direction, LoRA, CG", f"{CONFIGS}/maze.yaml"),
        "no_lora": Variant("no LoRA: maps do not depend on what is seen", f"{CONFIGS}/maze.yaml", {"model.init_args.lora_rank": 0}),
        "global": Variant(
            "one map for all directions, no LoRA",
            f"{CONFIGS}/maze.yaml",
            {"model.init_args.lora_rank": 0, "model.init_args.maps": "global"},
        ),
        "identity": Variant(
            "identity maps: plain consensus",
            f"{CONFIGS}/maze.yaml",
            {"model.init_args.lora_rank": 0, "model.init_args.maps": "identity"},
        ),
        "gd": Variant(
            "10 gradient steps instead of 3 CG steps",
            f"{CONFIGS}/maze.yaml",
            {"model.init_args.solver": "gd", "model.init_args.solver_steps": 10},
        ),
        "k0": Variant(
            "K = 0: nobody talks",
            f"{CONFIGS}/maze.yaml",
            {"model.init_args.train_horizon": 0, "model.init_args.eval_horizon": 0},
        ),
    },
    metrics=tuple(metric for metric in METRICS if "_at_60" not in metric.name),
    steps=600,
    overrides={**SHARED, "model.init_args.test_horizons": (32,)},
    seed_options=("seed_everything", "data.init_args.seed"),
)
