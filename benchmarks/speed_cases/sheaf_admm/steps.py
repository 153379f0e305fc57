"""Training steps and evaluations of Sheaf-ADMM beside message passing with as many rounds, and with recomputed activations."""

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.speed import Case
from benchmarks.timing import PairedTimes, measure
from lightning_modules.sheaf_admm.agent_module import AgentModule
from lightning_modules.sheaf_admm.maze import MazeTask
from lightning_modules.sheaf_admm.module import RecurrentMPNNModule, SheafADMMModule
from lightning_modules.sheaf_admm.sudoku import SudokuTask
from lightning_modules.sheaf_admm.task import Batch

SMALL = {"cell_dim": 8, "model_dim": 32, "decoder_dim": 64}
MAZE = {"gamma": 5.0, "loss_window": 4, "lora_rank": 4, "l1": 0.01, "upper": 1.0, "learned_box": True}


def sudoku_step(box: tuple[int, int], batch: int, horizon: int, sizes: dict[str, int]) -> Callable[[int], PairedTimes]:
    """A step of Sheaf-ADMM against one of the slot-routed MPNN with as many rounds."""

    def time(pairs: int) -> PairedTimes:
        torch.manual_seed(0)
        side = box[0] * box[1]
        solution = torch.randint(1, side + 1, (batch, side, side))
        boards = {"puzzle": solution * (torch.rand(solution.shape) < 0.3), "solution": solution}
        options: dict[str, Any] = {"train_horizon": horizon, "eval_horizon": horizon}
        sheaf = SheafADMMModule(SudokuTask(box, **sizes), **options)
        mpnn = RecurrentMPNNModule(SudokuTask(box, **sizes), routing="receiver_slot", pooling="mean", **options)
        return measure(_step(sheaf, boards, horizon), _step(mpnn, boards, horizon), pairs)

    return time


def maze_step(side: int, batch: int, horizon: int) -> Callable[[int], PairedTimes]:
    """A step of the paper's maze model against one of the parameter-matched MPNN with as many rounds."""

    def time(pairs: int) -> PairedTimes:
        mazes = _mazes(side, batch)
        return measure(_step(_sheaf(), mazes, horizon), _step(_mpnn(), mazes, horizon), pairs)

    return time


def maze_evaluation(side: int, batch: int, horizon: int) -> Callable[[int], PairedTimes]:
    """An evaluation of the paper's maze model against one of the parameter-matched MPNN with as many rounds."""

    def time(pairs: int) -> PairedTimes:
        mazes, sheaf, mpnn = _mazes(side, batch), _sheaf().eval(), _mpnn().eval()
        with torch.no_grad():
            return measure(lambda: sheaf.iterates(mazes, [horizon]), lambda: mpnn.iterates(mazes, [horizon]), pairs)

    return time


def recomputed_step(pairs: int) -> PairedTimes:
    """A step that recomputes five iterations at a time against one that keeps all activations."""
    mazes = _mazes(19, 16)
    return measure(_step(_sheaf(checkpoint_every=5), mazes, 20), _step(_sheaf(), mazes, 20), pairs)


def _sheaf(**options: Any) -> SheafADMMModule:
    torch.manual_seed(0)
    return SheafADMMModule(MazeTask(), **{**MAZE, **options})


def _mpnn() -> RecurrentMPNNModule:
    torch.manual_seed(0)
    return RecurrentMPNNModule(MazeTask(state_dim=84), message_dim=42)


def _mazes(side: int, batch: int) -> Batch:
    """Boards of random tokens, which cost as much as real ones."""
    generator = torch.Generator().manual_seed(0)
    maze, solution = torch.randint(1, 5, (2, batch, side, side), generator=generator)
    return {"maze": maze, "solution": solution}


def _step(module: AgentModule, boards: Batch, horizon: int) -> Callable[[], None]:
    """Return a function that does one training step: forward, backward, optimiser."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4)

    def step() -> None:
        states = module.iterates(boards, range(horizon - module.loss_window + 1, horizon + 1))
        x = torch.stack(list(states.values()))
        module.task.loss(module.task.decode(x, module.task.views(boards)), boards).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


CASES = (
    Case("training step, Sudoku 4×4 (K 8, batch 32)", "slot-routed MPNN, 8 rounds", "", sudoku_step((2, 2), 32, 8, SMALL)),
    Case(
        "training step, Sudoku 9×9 (K 5, batch 16, paper's widths)",
        "slot-routed MPNN, 5 rounds",
        "",
        sudoku_step((3, 3), 16, 5, {}),
        10,
    ),
    Case("training step, maze 19×19 px (K 15, batch 16, paper's widths)", "MPNN, 15 rounds", "", maze_step(19, 16, 15), 10),
    Case("training step, maze 73×73 px (K 15, batch 2, paper's widths)", "MPNN, 15 rounds", "", maze_step(73, 2, 15), 6),
    Case("evaluation, maze 19×19 px (K 100, batch 16, paper's widths)", "MPNN, 100 rounds", "", maze_evaluation(19, 16, 100), 10),
    Case("evaluation, maze 73×73 px (K 100, batch 2, paper's widths)", "MPNN, 100 rounds", "", maze_evaluation(73, 2, 100), 6),
    Case("training step with checkpoint_every 5, maze 19×19 px (K 20, batch 16)", "keeping all", "", recomputed_step, 10),
)
