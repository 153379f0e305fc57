"""What happens inside the unrolled ADMM: residuals, disagreement and the answer, iteration by iteration."""

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from callbacks.figure_style import figure_style
from callbacks.figures import publish_figure
from callbacks.puzzle_figures import board_strip

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class IterationHistory(Protocol):
    """What K iterations left behind on a batch of B samples with N agents.

    Attributes:
        primal: primal residual of each agent, ``[K, N, B]``.
        dual: dual residual of each agent, ``[K, N, B]``.
        disagreement: root mean square of the disagreement on all edges, ``[K, B]``.
        correct: whether the decoded answer is right, ``[K, B]``.
        answers: the decoded answer, ``[K, B, cells]``.
    """

    primal: Tensor
    dual: Tensor
    disagreement: Tensor
    correct: Tensor
    answers: Tensor


@runtime_checkable
class RecordsADMM(Protocol):
    """A module that can coordinate on a batch and record every iteration."""

    def admm_history(self, batch: Any, steps: int) -> IterationHistory: ...


@runtime_checkable
class DescribesData(Protocol):
    """A data module that says what its data dictate to the model; ``box_shape`` gives boards their thick lines."""

    def model_arguments(self) -> dict[str, Any]: ...


class ADMMDiagnostics(Callback):
    """Draw residuals and solved rate against the iteration, and the boards on the way to the answer.

    The first batch of a validation, and of the test, is run once more with recording on, on rank zero only. The figures are
    ``admm_validation``, ``admm_test`` and, when the batch holds ``puzzle`` and ``solution`` boards, ``boards_test``.

    Args:
        every_n_epochs: draw at the first validation after each n epochs.
        steps: iterations to record.
        boards: answers to show in ``boards_test``, at iterations spread evenly on a logarithmic scale.

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
        if batch_idx == dataloader_idx == 0 and trainer.is_global_zero:
            history = self._record(trainer, pl_module, batch, "test")
            if isinstance(batch, dict) and {"puzzle", "solution"} <= batch.keys():
                self._show_boards(trainer, batch, history)

    def _is_due(self, trainer: Trainer) -> bool:
        return trainer.current_epoch >= self._next_epoch and not trainer.sanity_checking

    def _record(self, trainer: Trainer, pl_module: RecordsADMM, batch: Any, stage: str) -> IterationHistory:
        """Run the batch with recording on and publish its curves."""
        with torch.no_grad(), trainer.precision_plugin.forward_context():
            history = pl_module.admm_history(batch, self.steps)
        with figure_style():
            publish_figure(trainer, iteration_figure(history), f"admm_{stage}")
        return history

    def _show_boards(self, trainer: Trainer, batch: dict[str, Tensor], history: IterationHistory) -> None:
        """Publish the answers to one sample: the one that was solved last, else the first."""
        solved_late_B = torch.where(history.correct[-1], (~history.correct).sum(dim=0), -1)
        sample = int(solved_late_B.argmax())
        puzzle, solution = batch["puzzle"][sample].cpu(), batch["solution"][sample].cpu()
        iterations = spread_iterations(len(history.answers), self.boards)
        answers = history.answers[[k - 1 for k in iterations], sample].cpu().view(-1, *puzzle.shape)
        datamodule = getattr(trainer, "datamodule", None)
        box_shape = datamodule.model_arguments().get("box_shape") if isinstance(datamodule, DescribesData) else None
        with figure_style():
            figure = board_strip(puzzle, solution, answers, [f"k = {k}" for k in iterations], box_shape)
            publish_figure(trainer, figure, "boards_test")


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
