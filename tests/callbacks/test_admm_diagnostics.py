from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.demos.boring_classes import BoringModel
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader

from callbacks.admm_diagnostics import ADMMDiagnostics, iteration_figure, spread_iterations
from callbacks.puzzle_figures import WRONG, board_strip

K, N, B, SIDE = 6, 3, 2, 4


def history(steps: int) -> SimpleNamespace:
    """Residuals that halve each iteration; sample 0 is solved from iteration 3, sample 1 never."""
    k = torch.arange(1.0, steps + 1)
    falling = (0.5**k)[:, None, None].expand(steps, N, B)
    correct = torch.stack([k >= 3, torch.zeros(steps, dtype=torch.bool)], dim=1)
    answers = torch.ones(steps, B, SIDE * SIDE, dtype=torch.long)
    return SimpleNamespace(primal=falling, dual=2 * falling, disagreement=falling[:, 0], correct=correct, answers=answers)


class Agents(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.recorded = []

    def admm_history(self, batch, steps):
        self.recorded.append(steps)
        return history(steps)

    def training_step(self, batch, batch_idx):
        return self.layer.weight.sum()

    def validation_step(self, batch, batch_idx): ...

    def test_step(self, batch, batch_idx, dataloader_idx=0): ...

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def boards():
    puzzle = torch.zeros(B, SIDE, SIDE, dtype=torch.long)
    return DataLoader([{"puzzle": puzzle, "solution": puzzle + 1}] * 2, batch_size=None)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    model = Agents()
    trainer = Trainer(
        default_root_dir=tmp_path_factory.mktemp("run"),
        max_epochs=4,
        limit_train_batches=1,
        callbacks=[ADMMDiagnostics(every_n_epochs=2, steps=K)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        accelerator="cpu",
    )
    trainer.fit(model, boards(), boards())
    trainer.test(model, boards(), verbose=False)
    return trainer, model


def test_figures_of_every_second_validation_and_of_the_test(run):
    trainer, model = run
    names = {path.name for path in Path(trainer.default_root_dir, "figures").iterdir()}
    assert names == {"admm_validation_2.png", "admm_validation_4.png", "admm_test_4.png", "boards_test_4.png"}
    assert model.recorded == [K] * 3, "one batch a drawing"


class MazeTask:
    patch, stride = 3, 2

    def graph_of(self, batch):
        return SimpleNamespace(pos=torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]]))


class MazeAgents(Agents):
    """Three agents above each other; the middle one, at the branch point, has twice the residual at first, then ten times."""

    def __init__(self):
        super().__init__()
        self.task = MazeTask()

    def admm_history(self, batch, steps):
        primal = torch.ones(steps, 3, 1)
        primal[:, 1] = torch.where(torch.arange(steps) < steps // 2, 2.0, 10.0)[:, None]
        correct = torch.zeros(steps, 1, dtype=torch.bool)
        answers = batch["solution"].flatten(1).expand(steps, -1, -1)
        return SimpleNamespace(primal=primal, dual=primal, disagreement=primal[:, 0], correct=correct, answers=answers)


def maze_loaders():
    maze = torch.tensor([[1, 1, 1], [1, 3, 1], [1, 2, 1], [2, 2, 4], [1, 2, 1], [1, 2, 1], [1, 1, 1]])
    return [DataLoader([{"maze": maze[None], "solution": maze[None]}] * 2, batch_size=None) for _ in range(2)]


@pytest.mark.parametrize("options", [{}, {"strategy": "ddp_fork", "devices": 2, "use_distributed_sampler": False}])
def test_mazes_give_a_strip_an_animation_and_a_number(tmp_path, options):
    trainer = Trainer(
        default_root_dir=tmp_path,
        callbacks=[ADMMDiagnostics(steps=K)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        **options,
    )
    results = trainer.test(MazeAgents(), maze_loaders(), verbose=False)
    assert results[0] == {"test/residual_at_branches": pytest.approx(2.0)}
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"admm_test_0.png", "maze_test_0.png", "maze_test_0.gif"}
    assert Image.open(tmp_path / "figures" / "maze_test_0.gif").n_frames == K


def test_mazes_of_a_task_without_patches_give_no_strip(tmp_path):
    trainer, model = SimpleNamespace(is_global_zero=True), MazeAgents()
    model.task, callback = object(), ADMMDiagnostics(steps=K)
    callback._record = lambda *_: None
    callback.on_test_batch_end(trainer, model, None, maze_loaders()[0].dataset[0], 0)


def test_validation_at_odd_epochs_still_draws(monkeypatch):
    callback, drawn = ADMMDiagnostics(every_n_epochs=5), []
    monkeypatch.setattr(callback, "_record", lambda trainer, *_: drawn.append(trainer.current_epoch))
    for epoch in (3, 7, 11, 15, 19):
        trainer = SimpleNamespace(current_epoch=epoch, sanity_checking=False, is_global_zero=True)
        callback.on_validation_batch_end(trainer, Agents(), None, None, 0)
    assert drawn == [7, 15]


def test_curves_show_the_history():
    left, right = iteration_figure(history(K)).axes
    curves = {line.get_label(): line.get_ydata() for line in left.lines}
    assert curves["primal"] == pytest.approx([0.5**k for k in range(1, K + 1)])
    assert curves["dual"] == pytest.approx([2 * 0.5**k for k in range(1, K + 1)])
    assert left.get_yscale() == "log"
    assert list(right.lines[0].get_xdata()) == [1, 2, 3, 4, 5, 6]
    assert list(right.lines[0].get_ydata()) == [0, 0, 0.5, 0.5, 0.5, 0.5]


def test_board_strip_marks_wrong_cells():
    solution = torch.tensor([[1, 2], [2, 1]])
    puzzle = torch.tensor([[1, 0], [0, 0]])
    wrong = torch.tensor([[1, 1], [2, 1]])
    figure = board_strip(puzzle, solution, torch.stack([wrong, solution]), ["k = 1", "k = 2"], (1, 2))
    _, first, second = figure.axes
    assert first.get_title() == "k = 1: 1 wrong"
    assert second.get_title() == "k = 2: 0 wrong"
    (shade,) = first.patches
    assert shade.get_xy() == (1, 0)
    assert not second.patches
    assert [text.get_text() for text in first.texts if text.get_color() == WRONG] == ["1"]
    assert [text.get_text() for text in first.texts if text.get_fontweight() == "bold"] == ["1"]


def test_spread_iterations():
    assert spread_iterations(16, 5) == [1, 2, 4, 8, 16]
    assert spread_iterations(2, 5) == [1, 2]
    assert spread_iterations(7, 1) == [7]


def test_module_without_history_is_refused():
    with pytest.raises(ValueError, match="BoringModel has not"):
        ADMMDiagnostics().setup(Trainer(logger=False, accelerator="cpu"), BoringModel(), "fit")


def test_numbers_must_be_positive():
    with pytest.raises(ValueError, match="every_n_epochs=0"):
        ADMMDiagnostics(every_n_epochs=0)
