from types import SimpleNamespace

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from PIL import Image

from callbacks.figures import publish_animation
from callbacks.maze_figures import MISSING, RIGHT, WRONG, branch_points, residual_at_branches, residual_frames, residual_strip

MAZE = torch.tensor(
    [
        [1, 1, 1, 1, 1, 1, 1],
        [1, 3, 2, 2, 2, 2, 1],
        [1, 1, 1, 2, 1, 1, 1],
        [1, 2, 2, 2, 1, 2, 1],
        [1, 2, 1, 1, 1, 2, 1],
        [1, 2, 2, 4, 2, 2, 1],
        [1, 1, 1, 1, 1, 1, 1],
    ]
)
"""One branch point, at row 1 and column 3."""
PATH = [(1, 2), (1, 3), (2, 3), (3, 3), (3, 2), (3, 1), (4, 1), (5, 1), (5, 2)]
SOLUTION = MAZE.clone()
SOLUTION[tuple(zip(*PATH, strict=True))] = 5
ANSWER = SOLUTION.clone()
ANSWER[1, 4], ANSWER[5, 2] = 5, 2


def test_branch_points():
    assert branch_points(MAZE[None]).nonzero().tolist() == [[0, 1, 3]]
    crossing = torch.tensor([[[1, 2, 1], [2, 2, 2], [1, 1, 1]], [[2, 2, 2], [1, 1, 1], [1, 1, 1]]])
    assert branch_points(crossing).nonzero().tolist() == [[0, 1, 1]], "outside is wall"


def test_residual_at_branches():
    """With patches of 3 at stride 2 only the middle agent of the upper row sees the branch point."""
    primal = torch.ones(2, 9, 1)
    primal[:, 1, 0] = torch.tensor([3.0, 5.0])
    assert float(residual_at_branches(MAZE[None], primal, rows=3, patch=3, stride=2)) == pytest.approx(4.0)
    primal[:, 0, 0] = 9.0
    assert float(residual_at_branches(MAZE[None], primal, rows=3, patch=3, stride=2)) == pytest.approx(4.0 / 2.0)


def test_border_patches_that_stick_out_and_shared_branch_points():
    """At stride 3 the agents' patches are columns 0-2, 3-5, 6-8 of 7, and rows likewise; the branch point belongs to agent 1."""
    primal = torch.arange(9.0).view(1, 9, 1)
    assert float(residual_at_branches(MAZE[None], primal, rows=3, patch=3, stride=3)) == pytest.approx(1.0 / (35.0 / 8))
    both = torch.stack([MAZE, MAZE.flip(0)])
    primal = torch.arange(18.0).view(1, 9, 2)
    expected = [2 / np.mean([2 * agent for agent in range(9) if agent != 1]), 9 / np.mean([2 * a + 1 for a in range(9) if a != 4])]
    assert residual_at_branches(both, primal, rows=3, patch=3, stride=3).tolist() == pytest.approx(expected)


def test_no_branch_point_gives_no_number():
    assert residual_at_branches(torch.ones(1, 7, 7), torch.ones(1, 9, 1), rows=3, patch=3, stride=2).isnan().all()


def strip():
    primal = torch.arange(1.0, 19.0).view(2, 3, 3)
    return residual_strip(MAZE, SOLUTION, torch.stack([ANSWER, SOLUTION]), primal, ["k = 1", "k = 2"]), primal


def test_strip_shows_residuals_above_paths():
    figure, primal = strip()
    assert [axes.get_title() for axes in figure.axes[:6]] == ["maze", "k = 1", "k = 2", "solution", "2 px wrong", "solved"]
    for axes, shown in zip(figure.axes[1:3], primal, strict=True):
        (image,) = axes.images
        assert np.array_equal(image.get_array(), shown)
        assert (image.norm.vmin, image.norm.vmax) == (1.0, 18.0), "one scale for all"
        assert image.get_extent() == [-0.5, 6.5, 6.5, -0.5]
    assert figure.axes[6].get_ylabel() == "primal residual"
    assert figure.axes[6].get_yscale() == "log"


def test_paths_are_coloured_by_what_is_right():
    figure, _ = strip()
    (image,) = figure.axes[4].images
    pixels = np.asarray(image.get_array())
    names = {"right": RIGHT, "wrong": WRONG, "missing": MISSING}
    coloured = {name: set(map(tuple, np.argwhere((pixels == to_rgb(c)).all(-1)))) for name, c in names.items()}
    assert coloured == {"right": set(PATH) - {(5, 2)}, "wrong": {(1, 4)}, "missing": {(5, 2)}}
    assert figure.axes[4].collections[0].get_offsets().tolist() == [[4, 1]]
    (unmarked,) = figure.axes[0].images
    assert not (np.asarray(unmarked.get_array()) == to_rgb(RIGHT)).all(-1).any()


def test_colour_scale_ends_four_decades_down():
    primal = torch.tensor([[[2.0, 0.0], [1e-9, 1.0]]])
    figure = residual_strip(MAZE, SOLUTION, ANSWER[None], primal, ["k = 1"])
    norm = figure.axes[1].images[0].norm
    assert (norm.vmin, norm.vmax) == pytest.approx((2e-4, 2.0))
    assert residual_strip(MAZE, SOLUTION, ANSWER[None], torch.zeros(1, 2, 2), ["k = 1"]).axes[1].images[0].norm.vmax > 0


def test_animation_has_one_frame_an_iteration(tmp_path):
    answers, primal = torch.stack([ANSWER, ANSWER, SOLUTION, SOLUTION]), torch.ones(4, 3, 3)
    frames = list(residual_frames(MAZE, SOLUTION, answers, primal))
    assert len({frame.shape for frame in frames}) == 1
    assert (frames[1] != frames[2]).any(axis=(1, 2)).mean() > 0.05
    trainer = SimpleNamespace(default_root_dir=tmp_path, global_step=3, lightning_module=None, is_global_zero=True, loggers=[])
    path = publish_animation(trainer, iter(frames), "maze_test")
    assert Image.open(path).n_frames == 4
