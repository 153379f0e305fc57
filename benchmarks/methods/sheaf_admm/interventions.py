"""What trained agents on a maze do when they are disturbed."""

from functools import partial

from benchmarks.experiments import Experiment, FigureSpec, Metric, Variant
from benchmarks.figures import bar_figure

SOLVED = {
    "none": "undisturbed",
    "kick": "noise of deviation 2 on z at k = 16",
    "forget": "u erased, k = 12 to 20",
    "cut": "30 % of the edges cut, k = 4 to 24",
    "penalty": "ρ × 4, k = 20 to 28",
    "liar": "one agent sees a false view",
}
RECOVERING = ("kick", "forget", "cut", "penalty")

INTERVENTIONS = Experiment(
    name="interventions",
    title="Interventions on a trained maze solver",
    description=(
        "Trained as in the maze experiment (11×11, learning rate 0.002), then tested over 40 iterations under one disturbance at a "
        "time. Recovery: iterations after the end of the disturbance until the answer is right for good, mean over the mazes that "
        "recover. A liar is found if it has the largest disagreement memory |u| of all 25 agents (chance 4 %), or the largest "
        "change of |u| against the undisturbed run, which only an oracle knows. Residuals at branches: mean primal residual of "
        "agents that see a branch point over that of the others."
    ),
    variants={"sheaf": Variant("Sheaf-ADMM", "configs/sheaf_admm/maze.yaml")},
    metrics=(
        *(Metric(f"test/intervention/{name}/solved", f"solved, {title}", percent=True) for name, title in SOLVED.items()),
        *(Metric(f"test/intervention/{name}/recovery_iterations", f"recovery, {name} (iterations)") for name in RECOVERING),
        Metric("test/intervention/liar/found", "liar found by ‖u‖", percent=True),
        Metric("test/intervention/liar/found_by_change", "liar found by change of ‖u‖", percent=True),
        Metric("test/residual_at_branches", "residual at branches / elsewhere"),
    ),
    steps=1500,
    overrides={"data.init_args.generator_seed": 0, "model.init_args.lr": 2e-3, "data.init_args.ood": "none"},
    seed_options=("seed_everything", "data.init_args.seed"),
    figures=(
        FigureSpec(
            "interventions",
            "Share of mazes solved at k = 40 when the run was disturbed on the way.",
            partial(
                bar_figure,
                metrics={title: f"test/intervention/{name}/solved" for name, title in SOLVED.items()},
                x_label="solved mazes after 40 iterations",
            ),
        ),
    ),
)
