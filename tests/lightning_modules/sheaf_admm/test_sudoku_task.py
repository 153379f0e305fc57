import math

import pytest
import torch

from lightning_modules.sheaf_admm.layers import Dense
from lightning_modules.sheaf_admm.sudoku import SudokuTask


def small_task(box_shape: tuple[int, int] = (2, 3)) -> SudokuTask:
    torch.manual_seed(0)
    return SudokuTask(box_shape, cell_dim=4, model_dim=8, decoder_dim=8)


def random_boards(side: int, batch: int = 3) -> torch.Tensor:
    return torch.randint(0, side + 1, (batch, side, side), generator=torch.Generator().manual_seed(1))


def test_views_are_rows_columns_and_boxes():
    board = random_boards(6)
    views = small_task().views({"puzzle": board})
    rows = [board[:, i] for i in range(6)]
    columns = [board[:, :, j] for j in range(6)]
    boxes = [board[:, r : r + 2, c : c + 3].flatten(1) for r in (0, 2, 4) for c in (0, 3)]
    assert torch.equal(views, torch.stack(rows + columns + boxes))


@pytest.mark.parametrize("box_shape", [(2, 2), (2, 3), (3, 2), (3, 3)])
def test_cutting_and_joining_gives_the_board_back(box_shape):
    task = small_task(box_shape)
    board = random_boards(task.side)
    logits = torch.nn.functional.one_hot(task.views({"puzzle": board}), task.side + 1).float()
    answer = task.aggregate(logits, {})
    assert torch.equal(answer.argmax(-1), board.flatten(1))
    assert torch.equal(answer.sum(-1), torch.ones_like(answer[..., 0]))  # the mean of exactly three votes


def test_each_agent_has_a_third_of_the_vote():
    task = small_task()
    logits = torch.zeros(18, 1, 6, 7)
    logits[6 + 2, 0, 4, 5] = 1.0  # the agent of column 2 speaks about its cell in row 4
    answer = task.aggregate(logits, {})
    assert answer[0, 4 * 6 + 2, 5].item() == pytest.approx(1 / 3)
    assert answer.sum().item() == pytest.approx(1 / 3)


def test_loss_of_ignorance_and_of_knowledge():
    task = small_task()
    solution = random_boards(6).clamp_min(1)
    batch = {"puzzle": solution.clone(), "solution": solution}
    ignorant = torch.zeros(2, 18, 3, 6, 7)
    assert task.loss(ignorant, batch).item() == pytest.approx(math.log(7))
    certain = 50.0 * torch.nn.functional.one_hot(task._cut(solution), 7).float()
    assert task.loss(certain, batch).item() == pytest.approx(0.0, abs=1e-6)
    # the mean over two iterates, one ignorant and one certain; all cells are givens and still count
    assert task.loss(torch.stack([ignorant[0], certain]), batch).item() == pytest.approx(math.log(7) / 2)


def test_decoder_reads_each_slice_alone():
    task = small_task()
    x = torch.randn(18, 2, 24, requires_grad=True)
    (gradient,) = torch.autograd.grad(task.decode(x, None)[3, 1, 2].sum(), x)
    seen = gradient.abs() > 0
    assert seen[3, 1, 8:12].all()
    assert seen.sum() == 4


def test_state_starts_normalised_and_knows_its_place():
    task = small_task()
    h, f = task.encode(torch.zeros(18, 2, 6, dtype=torch.long))
    assert h.shape == (18, 2, 24)
    assert f.shape == (18, 2, 8)
    assert torch.allclose(h.mean(-1), torch.zeros(18, 2), atol=1e-5)
    assert torch.allclose(h.var(-1, unbiased=False), torch.ones(18, 2), atol=1e-2)
    assert (h[0] - h[1]).abs().max() > 1e-2  # same digits, other cells


def test_specification_builds_the_same_task():
    task = SudokuTask((2, 2), model_dim=16)
    specification = task.specification()
    assert specification["class_path"] == "lightning_modules.sheaf_admm.sudoku.SudokuTask"
    assert specification["init_args"] == {
        "box_shape": (2, 2), "cell_dim": 32, "model_dim": 16, "decoder_dim": 256, "mixer_blocks": 2,
    }  # fmt: skip


def test_dense_starts_as_lecun_wrote():
    torch.manual_seed(0)
    layer = Dense(100, 2000)
    weight = layer.weight.detach()
    assert weight.std().item() == pytest.approx(0.1, rel=0.01)
    assert weight.abs().max().item() <= 2 * 0.1 / 0.8796
    assert not layer.bias.any()


def test_missing_and_wrong_sizes_are_refused():
    with pytest.raises(ValueError, match="box_shape"):
        SudokuTask()
    with pytest.raises(ValueError, match="built for 6x6"):
        small_task().views({"puzzle": random_boards(9)})
