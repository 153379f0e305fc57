import numpy as np
import pytest

from datamodules.image_corruptions import CHUNK, add_noise, blank_blocks, block_grid, choose_blocks, pad_with_zeros

SEED = (0, 7)


def test_padding_by_hand():
    padded = pad_with_zeros(np.array([[[1.0, 2.0]], [[3.0, 4.0]]], dtype=np.float32), 1)
    assert padded.dtype == np.float32
    assert padded.tolist() == [[[0, 0, 0, 0], [0, 1, 2, 0], [0, 0, 0, 0]], [[0, 0, 0, 0], [0, 3, 4, 0], [0, 0, 0, 0]]]


@pytest.mark.parametrize(
    ("height", "width", "patch", "grid"),
    [(28, 28, 3, (9, 9)), (14, 14, 3, (5, 5)), (8, 8, 2, (4, 4)), (36, 28, 3, (12, 9)), (5, 4, 3, (2, 1))],
)
def test_block_grid(height: int, width: int, patch: int, grid: tuple[int, int]):
    assert block_grid(height, width, patch) == grid


def test_blanked_blocks_by_hand():
    # 5 x 4 pixels, patch 3: blocks of rows 0-2 and of rows 3-4 (one row sticks out), both of columns 0-2; nobody sees column 3
    image = np.arange(1.0, 21.0).reshape(1, 5, 4)
    lower = blank_blocks(image, np.array([[False, True]]), 3)
    assert lower[0, :3].tolist() == image[0, :3].tolist()
    assert lower[0, 3:].tolist() == [[0, 0, 0, 16], [0, 0, 0, 20]]
    upper = blank_blocks(image, np.array([[True, False]]), 3)
    assert upper[0, :3].tolist() == [[0, 0, 0, 4], [0, 0, 0, 8], [0, 0, 0, 12]]
    assert upper[0, 3:].tolist() == image[0, 3:].tolist()
    assert image.min() == 1.0, "the original is left alone"


def test_blocks_are_counted_row_by_row():
    image = np.ones((1, 6, 9))
    dropped = np.zeros((1, 6), dtype=bool)
    dropped[0, 4] = True  # second row, second column of 2 x 3 blocks
    blanked = blank_blocks(image, dropped, 3)
    assert (blanked[0, 3:6, 3:6] == 0).all()
    assert blanked.sum() == 54 - 9


def test_every_image_loses_exactly_so_many_blocks_and_every_block_alike():
    mask = choose_blocks(81, 24, SEED, np.arange(2_000))
    assert mask.dtype == bool
    assert (mask.sum(axis=1) == 24).all()
    rates = mask.mean(axis=0)
    assert np.abs(rates - 24 / 81).max() < 5 * np.sqrt(24 / 81 * 57 / 81 / 2_000)
    assert len(np.unique(mask, axis=0)) == 2_000


def test_noise_has_its_moments_and_is_clipped():
    images = np.full((400, 28, 28), 0.5, dtype=np.float32)
    noisy = add_noise(images, 0.1, SEED, np.arange(400))
    assert noisy.dtype == np.float32
    difference = noisy.astype(np.float64) - 0.5  # 5 sigma to either bound: clipping changes nothing measurable
    assert abs(difference.mean()) < 5 * 0.1 / np.sqrt(difference.size)
    assert difference.std() == pytest.approx(0.1, rel=5 / np.sqrt(2 * difference.size))
    assert abs((difference**3).mean()) < 5 * 0.1**3 * np.sqrt(15 / difference.size)
    dark = add_noise(np.zeros_like(images), 0.5, SEED, np.arange(400))
    assert dark.min() == 0.0
    assert dark.max() == 1.0
    assert (dark == 0.0).mean() == pytest.approx(0.5, abs=5 * 0.5 / np.sqrt(dark.size))
    assert (dark == 1.0).mean() == pytest.approx(0.02275, abs=5 * 0.15 / np.sqrt(dark.size))  # P(N > 2)


@pytest.mark.parametrize("draw", ["noise", "blocks"])
def test_random_numbers_belong_to_the_image(draw: str):
    images = np.full((3 * CHUNK, 6, 6), 0.5, dtype=np.float32)

    def corrupt(indices: np.ndarray, seed: tuple[int, int] = SEED) -> np.ndarray:
        return add_noise(images[indices], 0.1, seed, indices) if draw == "noise" else choose_blocks(81, 8, seed, indices)

    whole = corrupt(np.arange(3 * CHUNK))
    assert len(np.unique(whole, axis=0)) == len(whole)
    for indices in (np.array([2 * CHUNK, 5, CHUNK - 1, CHUNK, 5]), np.arange(1, 3 * CHUNK, 2), np.array([CHUNK])):
        assert (corrupt(indices) == whole[indices]).all()
    assert (corrupt(np.arange(8), (0, 8)) != whole[:8]).any()
    assert (corrupt(np.arange(8), (1, 7)) != whole[:8]).any()
