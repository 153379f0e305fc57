"""Sudoku: Sheaf-ADMM against recurrent message passing."""

from dataclasses import replace
from functools import partial

from benchmarks.experiments import Experiment, FigureSpec, Metric, Tuning, Variant
from benchmarks.figures import horizon_figure

TRAINED_HORIZON = 8
OTHER_HORIZONS = (1, 2, 4, 16, 32)


def _sudoku(name: str, board: str, config: str, steps: int, overrides: dict[str, int]) -> Experiment:
    """Sheaf-ADMM against three recurrent message-passing networks on boards of one size."""
    return Experiment(
        name=name,
        title=f"Sudoku {board}",
        description=(
            "Equal steps and batches for all models; the learning rate is tuned for each over the same grid. Tested after "
            f"K = {TRAINED_HORIZON} iterations, as trained, and after others."
        ),
        variants={
            "sheaf": Variant("Sheaf-ADMM", f"configs/sheaf_admm/{config}.yaml"),
            "mpnn_max": Variant("MPNN, max (paper's kind)", f"configs/sheaf_admm/{config}_mpnn.yaml"),
            "mpnn_mean": Variant("MPNN, mean (paper's kind)", f"configs/sheaf_admm/{config}_mpnn_mean.yaml"),
            "mpnn_slot": Variant("MPNN, slot-routed", f"configs/sheaf_admm/{config}_mpnn_slot.yaml"),
        },
        metrics=(
            Metric("test/solved", f"solved, K = {TRAINED_HORIZON}", percent=True),
            Metric("test/solved_at_16", "solved, K = 16", percent=True),
            Metric("test/cell_accuracy", f"cells, K = {TRAINED_HORIZON}", percent=True),
            Metric("test/cell_accuracy_at_16", "cells, K = 16", percent=True),
        ),
        steps=steps,
        overrides={
            "data.init_args.generator_seed": 0,
            "model.init_args.eval_horizon": TRAINED_HORIZON,
            "model.init_args.test_horizons": OTHER_HORIZONS,
            **overrides,
        },
        seed_options=("seed_everything", "data.init_args.seed"),
        curve=tuple(f"test/solved_at_{k}" for k in OTHER_HORIZONS),
        tuning=Tuning({"model.init_args.lr": (1e-3, 2e-3, 4e-3)}, metric="val/cell_accuracy"),
        figures=(
            FigureSpec(
                name,
                f"Share of solved {board} puzzles against the number of iterations at test time.",
                partial(
                    horizon_figure,
                    metrics={"": "test/solved"},
                    x_label="iterations or message rounds K at test time",
                    y_label="solved puzzles",
                    trained_at=TRAINED_HORIZON,
                ),
            ),
        ),
    )


SUDOKU_6X6 = _sudoku("sudoku_6x6", "6×6", "sudoku_6x6", steps=1500, overrides={})

SUDOKU_6X6_LONGER = replace(
    SUDOKU_6X6,
    name="sudoku_6x6_longer",
    title="Sudoku 6×6, trained longer",
    description=(
        "The two best models of the shorter experiment, with the learning rate that it chose for both (0.004). "
        f"Tested after K = {TRAINED_HORIZON} iterations, as trained, and after others."
    ),
    variants={name: SUDOKU_6X6.variants[name] for name in ("sheaf", "mpnn_slot")},
    steps=4000,
    overrides={**SUDOKU_6X6.overrides, "model.init_args.lr": 4e-3},
    tuning=None,
    figures=tuple(replace(figure, name="sudoku_6x6_longer") for figure in SUDOKU_6X6.figures),
)

SUDOKU_4X4 = _sudoku("sudoku_4x4", "4×4", "sudoku", steps=3000, overrides={})
