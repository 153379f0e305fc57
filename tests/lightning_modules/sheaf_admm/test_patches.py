import warnings

import pytest
import torch
from torch import Tensor

from lightning_modules.sheaf_admm.patches import PatchGrid

SIZES = [(9, 9, 3, 2), (9, 13, 3, 2), (8, 7, 3, 2), (14, 14, 3, 3), (8, 8, 2, 2), (10, 11, 5, 3), (3, 3, 3, 2), (5, 4, 1, 1)]


def picture(height: int, width: int, batch: int = 2) -> Tensor:
    return torch.rand(batch, height, width, generator=torch.Generator().manual_seed(0)) + 1


def corners(height: int, width: int, patch: int, stride: int) -> list[tuple[int, int]]:
    """Upper left pixel of each patch, row by row."""
    rows, columns = (range(patch // 2, side, stride) for side in (height, width))
    return [(row - patch // 2, column - patch // 2) for row in rows for column in columns]


@pytest.mark.parametrize(
    ("side", "patch", "stride", "agents", "edges"),
    [
        (19, 3, 2, 81, 272),
        (37, 3, 2, 324, 1_190),
        (73, 3, 2, 1_296, 4_970),
        (36, 3, 3, 144, 506),
        (44, 3, 3, 225, 812),
        (60, 3, 3, 400, 1_482),
        (14, 3, 3, 25, 72),
        (8, 2, 2, 16, 42),
    ],
)
def test_counts(side, patch, stride, agents, edges):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        grid = PatchGrid(side, side, patch, stride)
    graph = grid.graph(torch.device("cpu"))
    assert (grid.num_agents, graph.num_nodes, graph.num_edges) == (agents, agents, edges)
    assert grid.cut(picture(side, side), 0.0).shape == (agents, 2, patch**2)


def test_mnist_leaves_its_last_row_and_column_unseen():
    with pytest.warns(UserWarning, match="3 px at stride 3 leave 55 of 784 pixels unseen"):
        grid = PatchGrid(28, 28, 3, 3)
    assert grid.num_agents == 81
    assert (grid.coverage[:27, :27] == 1).all()
    assert grid.coverage.sum() == 729 == 784 - 55


def test_long_grids_have_their_agents_in_rows():
    grid = PatchGrid(19, 37, 3, 2)
    assert (grid.rows, grid.columns) == (9, 18)
    assert PatchGrid(19, 73, 3, 2).num_agents == 9 * 36


@pytest.mark.parametrize("size", SIZES)
def test_cut_by_hand(size):
    height, width, patch, stride = size
    given, grid = picture(height, width), PatchGrid(*size)
    cut = grid.cut(given, outside=-3.0)
    assert len(cut) == grid.num_agents == len(corners(*size))
    outside = 0
    for agent, (top, left) in enumerate(corners(*size)):
        for pixel in range(patch**2):
            row, column = top + pixel // patch, left + pixel % patch
            inside = row < height and column < width
            outside += not inside
            expected = given[:, row, column] if inside else torch.full((2,), -3.0)
            assert torch.equal(cut[agent, :, pixel], expected)
    assert outside == (cut == -3.0).sum() / 2
    assert (outside > 0) == (size in [(8, 7, 3, 2), (14, 14, 3, 3), (10, 11, 5, 3)])


def test_tokens_stay_whole_numbers():
    tokens = torch.arange(64).view(1, 8, 8)
    cut = PatchGrid(8, 8, 3, 2).cut(tokens, outside=-1)
    assert cut.dtype == torch.long
    assert cut[0, 0].tolist() == [0, 1, 2, 8, 9, 10, 16, 17, 18]
    assert cut[-1, 0].tolist() == [54, 55, -1, 62, 63, -1, -1, -1, -1]


@pytest.mark.parametrize("size", SIZES)
def test_stitching_gives_the_picture_back(size):
    height, width, *_ = size
    given, grid = picture(height, width), PatchGrid(*size)
    channels = torch.stack([given, 2 * given, given.square()], dim=-1)
    patches = torch.stack([grid.cut(channel, outside=1e6) for channel in channels.unbind(-1)], dim=-1)
    assert torch.allclose(grid.stitch(patches), channels, atol=1e-6)


@pytest.mark.parametrize("size", SIZES)
def test_stitching_is_the_mean_over_the_patches_that_show_a_pixel(size):
    height, width, patch, stride = size
    grid = PatchGrid(*size)
    patches = torch.rand(grid.num_agents, 2, patch**2, 3, generator=torch.Generator().manual_seed(1)).double()
    shown = torch.zeros(height, width, 2, 3).double()
    times = torch.zeros(height, width)
    for agent, (top, left) in enumerate(corners(*size)):
        for pixel in range(patch**2):
            row, column = top + pixel // patch, left + pixel % patch
            if row < height and column < width:
                shown[row, column] += patches[agent, :, pixel]
                times[row, column] += 1
    assert torch.equal(grid.coverage, times)
    expected = (shown / times[..., None, None]).permute(2, 0, 1, 3)
    assert torch.allclose(grid.stitch(patches), expected, atol=1e-12)


def test_unseen_pixels_are_zero():
    with pytest.warns(UserWarning, match="leave 7 of 16 pixels unseen"):
        grid = PatchGrid(4, 4, 3, 3)
    stitched = grid.stitch(torch.ones(1, 1, 9, 2))
    assert stitched[0, :3, :3].eq(1).all()
    assert stitched.sum() == 18


def test_even_patches_tile():
    grid = PatchGrid(8, 6, 2, 2)
    assert (grid.rows, grid.columns) == (4, 3)
    assert (grid.coverage == 1).all()
    given = picture(8, 6)
    assert torch.equal(grid.cut(given, 0.0)[4], given[:, 2:4, 2:4].flatten(1))


def test_a_grid_made_in_inference_mode_serves_training():
    with torch.inference_mode():
        grid = PatchGrid(8, 8, 3, 2)
        grid.stitch(torch.rand(grid.num_agents, 1, 9, 2))
    patches = torch.rand(grid.num_agents, 1, 9, 2, requires_grad=True)
    grid.stitch(patches).sum().backward()
    # every pixel has weight 1 in all: half of it to either patch where two overlap, none where a patch sticks out
    assert patches.grad.sum().item() == pytest.approx(8 * 8 * 2)
    assert patches.grad[-1, 0, -1].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ((2, 9, 3, 2), "patches of 3 px at stride 2 do not fit into a picture of 2x9 px"),
        ((9, 2, 3, 2), "9x2 px"),
        ((9, 9, 3, 0), "at stride 0 do not fit"),
        ((9, 9, 0, 1), "patches of 0 px"),
        ((8, 8, 2, 1), r"an even patch has no centre: use an odd patch, or stride=2 to tile, not patch=2 stride=1"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(size, message):
    with pytest.raises(ValueError, match=message):
        PatchGrid(*size)
