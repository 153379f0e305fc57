"""What happens inside the unrolled ADMM: residuals, disagreement and the answer, iteration by iteration."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from callbacks.figure_style import figure_style
from callbacks.figures import publish_animation, publish_figure
from callbacks.maze_figures import residual_at_branches, residual_frames, residual_strip
from callbacks.puzzle_figures import board_strip

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class IterationHistory(Protocol):
    """What K iterations left behind on a batch of B samples with N agents.

    Attributes:
        primal: primal residual of each agent, ``[K, N, B]``.
        dual: dual residual of each agent, ``[K, N, B]``.
        memory: size of each agent's disagreement memory, ``|u|``, ``[K, N, B]``.
        disagreement: root mean square of the disagreement on all edges, ``[K, B]``.
        correct: whether the decoded answer is right, ``[K, B]``.
        answers: the decoded answer, ``[K, B, cells]``.
    """

    primal: Tensor
    dual: Tensor
    memory: Tensor
    disagreement: Tensor
    correct: Tensor
    answers: Tensor


@runtime_checkable
class RecordsADMM(Protocol):
    """A module that can coordinate on a batch, disturbed or not, and record every iteration."""

    def admm_history(self, batch: Any, steps: int, interventions: Sequence[Any] = ()) -> IterationHistory: ...


@runtime_checkable
class SeesPatches(Protocol):
    """A task whose agents stand in a grid, row by row, and each see a square of ``patch`` pixels, ``stride`` pixels apart.

    The graph that ``graph_of`` returns has the agents' rows and columns in ``pos``, ``[N, 2]``.
    """

    patch: int
    stride: int

    def graph_of(self, batch: Any) -> Any: ...


@runtime_checkable
class DescribesData(Protocol):
    """A data module that says what its data dictate to the model; ``box_shape`` gives boards their thick lines."""

    def model_arguments(self) -> dict[str, Any]: ...


class ADMMDiagnostics(Callback):
    """Draw residuals and solved rate against the iteration, and the boards on the way to the answer.

    The first batch of a validation, and of the test, is run once more with recording on; rank zero draws its share. The figures are
    ``admm_validation``, ``admm_test`` and, when the batch holds ``puzzle`` and ``solution`` boards, ``boards_test``.

    A batch with ``maze`` and ``solution`` gives ``maze_test``: the residual of each agent, drawn where it stands, above the path
    found so far, and the same for every iteration as an animation, ``maze_test.gif``. The test then logs
    ``test/residual_at_branches``: the mean primal residual, in the first half of the iterations, of the agents that see a branch
    point (an open pixel with three open neighbours or more), over that of the others; the mean over the batch's mazes.

    Args:
        every_n_epochs: draw at the first validation after each n epochs.
        steps: iterations to record.
        boards: answers to show in ``boards_test`` and ``maze_test``, at iterations spread evenly on a logarithmic scale.

    Raises:
        ValueError: if a number is not positive, or the module has no ``admm_history``.
    """

    def __init__(self, every_n_epochs: int = 1, steps: int = 50, boards: int = 5) -> None:
        if min(every_n_epochs, steps, boards) < 1:
            raise ValueError(f"ADMMDiagnostics needs positive numbers, got {every_n_epochs=}, {steps=} and {boards=}")
        self.every_n_epochs = every_n_epochs
        self.steps = steps
        self.boards = boards
        self._next_epoch = every_n_epochs - 1

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if not isinstance(pl_module, RecordsADMM):
            raise ValueError(
                f"ADMMDiagnostics needs a module with admm_history(batch, steps), which {type(pl_module).__name__} has not: "
                "leave the callback out"
            )

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if batch_idx == dataloader_idx == 0 and trainer.is_global_zero and self._is_due(trainer):
            self._next_epoch = trainer.current_epoch + self.every_n_epochs
            self._record(trainer, pl_module, batch, "validation")

    def on_test_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if batch_idx == dataloader_idx == 0:
            history = self._record(trainer, pl_module, batch, "test")
            keys = batch.keys() if isinstance(batch, dict) else set()
            if {"puzzle", "solution"} <= keys and trainer.is_global_zero:
                self._show_boards(trainer, batch, history)
            task = getattr(pl_module, "task", None)
            if {"maze", "solution"} <= keys and isinstance(task, SeesPatches):
                rows = int(task.graph_of(batch).pos[:, 0].max()) + 1
                self._log_branches(trainer, pl_module, batch["maze"], history, rows, task)
                if trainer.is_global_zero:
                    self._show_maze(trainer, batch, history, rows)

    def _is_due(self, trainer: Trainer) -> bool:
        return trainer.current_epoch >= self._next_epoch and not trainer.sanity_checking

    def _record(self, trainer: Trainer, pl_module: RecordsADMM, batch: Any, stage: str) -> IterationHistory:
        """Run the batch with recording on and publish its curves."""
        with torch.no_grad(), trainer.precision_plugin.forward_context():
            history = pl_module.admm_history(batch, self.steps)
        if trainer.is_global_zero:
            with figure_style():
                publish_figure(trainer, iteration_figure(history), f"admm_{stage}")
        return history

    def _show_boards(self, trainer: Trainer, batch: dict[str, Tensor], history: IterationHistory) -> None:
        """Publish the answers to one sample."""
        sample = _sample_to_show(history)
        puzzle, solution = batch["puzzle"][sample].cpu(), batch["solution"][sample].cpu()
        iterations = spread_iterations(len(history.answers), self.boards)
        answers = history.answers[[k - 1 for k in iterations], sample].cpu().view(-1, *puzzle.shape)
        datamodule = getattr(trainer, "datamodule", None)
        box_shape = datamodule.model_arguments().get("box_shape") if isinstance(datamodule, DescribesData) else None
        with figure_style():
            figure = board_strip(puzzle, solution, answers, [f"k = {k}" for k in iterations], box_shape)
            publish_figure(trainer, figure, "boards_test")

    def _log_branches(
        self, trainer: Trainer, pl_module: LightningModule, maze: Tensor, history: IterationHistory, rows: int, task: SeesPatches
    ) -> None:
        """Log how much more the agents at branch points argue."""
        early_KNB = history.primal[: max(len(history.primal) // 2, 1)]
        ratio_B = residual_at_branches(maze, early_KNB, rows, task.patch, task.stride)
        known_B = ratio_B.isfinite()
        # summed by hand: the mean that Lightning takes over ranks rounds the number of samples down
        total, count = trainer.strategy.reduce(torch.stack([ratio_B[known_B].sum(), known_B.sum()]), reduce_op="sum")
        if count > 0:
            options: Any = {"on_epoch": True, "sync_dist": True, "add_dataloader_idx": False, "batch_size": 1}
            pl_module.log("test/residual_at_branches", total / count, **options)

    def _show_maze(self, trainer: Trainer, batch: dict[str, Tensor], history: IterationHistory, rows: int) -> None:
        """Publish the residuals and the paths of one sample."""
        sample = _sample_to_show(history)
        maze, solution = batch["maze"][sample].cpu(), batch["solution"][sample].cpu()
        answers = history.answers[:, sample].cpu().view(-1, *maze.shape)
        primal = history.primal[:, :, sample].cpu().unflatten(1, (rows, -1))
        iterations = spread_iterations(len(answers), self.boards)
        shown = [k - 1 for k in iterations]
        with figure_style():
            figure = residual_strip(maze, solution, answers[shown], primal[shown], [f"k = {k}" for k in iterations])
            publish_figure(trainer, figure, "maze_test")
            publish_animation(trainer, residual_frames(maze, solution, answers, primal), "maze_test")


def _sample_to_show(history: IterationHistory) -> int:
    """Return the sample that was solved last, else the first."""
    solved_late_B = torch.where(history.correct[-1], (~history.correct).sum(dim=0), -1)
    return int(solved_late_B.argmax())


def spread_iterations(last: int, count: int) -> list[int]:
    """Return up to ``count`` iteration numbers from 1 to ``last``, dense at the beginning.

    Numbers that round to the same one appear once.
    """
    if count == 1:
        return [last]
    return sorted({round(last ** (i / (count - 1))) for i in range(count)})


def iteration_figure(history: IterationHistory) -> "Figure":
    """Draw median and 10–90 % band of the residuals over agents and samples, and the share of solved samples."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    iterations = range(1, len(history.primal) + 1)
    curves = {"primal": history.primal, "dual": history.dual, "disagreement": history.disagreement}
    levels = torch.tensor([0.1, 0.5, 0.9])
    for name, values in curves.items():
        low, median, high = torch.quantile(values.detach().float().cpu().flatten(1), levels, dim=1).numpy()
        (line,) = left.plot(iterations, median, label=name)
        left.fill_between(iterations, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    left.set(yscale="log", xlabel="iteration", title="residuals (median, 10–90 %)")
    left.legend()
    right.plot(iterations, history.correct.float().mean(dim=1).cpu().numpy())
    right.set(ylim=(-0.02, 1.02), xlabel="iteration", title="share of samples solved")
    return figure
