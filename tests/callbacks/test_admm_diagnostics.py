from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.demos.boring_classes import BoringModel
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

    def test_step(self, batch, batch_idx): ...

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
