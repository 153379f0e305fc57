import copy
import io

import numpy as np
import pytest
import torch

from datamodules.rl.normalisers import RunningMeanStd


def stream(items: int, shape: tuple[int, ...] = (3,)) -> torch.Tensor:
    """Far from zero and drifting, so that a formula with a difference of squares, or an average of averages, shows."""
    g = torch.Generator().manual_seed(0)
    return 1e4 + torch.randn(items, *shape, generator=g, dtype=torch.float64).cumsum(0)


def test_by_hand():
    running = RunningMeanStd(())
    running.update(torch.tensor([1.0, 3.0]))
    running.update(torch.tensor([8.0]))
    assert running.count == 3
    assert running.mean.item() == 4.0
    assert running.variance.item() == pytest.approx(26 / 3, abs=1e-14)  # (9 + 1 + 16) / 3
    assert running.normalise(torch.tensor(6.0)).item() == pytest.approx(2 / (26 / 3) ** 0.5, rel=1e-6)


@pytest.mark.parametrize("shape", [(), (3,), (2, 4)])
@pytest.mark.parametrize("cuts", [[1000], [1] * 1000, [1, 499, 0, 17, 483]])
def test_batches_are_one_stream(shape: tuple[int, ...], cuts: list[int]):
    data = stream(1000, shape)
    running = RunningMeanStd(shape)
    for batch in data.split(cuts):
        running.update(batch)
    assert running.count == 1000
    np.testing.assert_allclose(running.mean, np.mean(data.numpy(), axis=0), rtol=1e-12)
    np.testing.assert_allclose(running.variance, np.var(data.numpy(), axis=0), rtol=1e-10)


@pytest.mark.parametrize("share", [0, 1, 300, 999, 1000])
def test_two_merged_are_one_stream(share: int):
    data = stream(1000)
    whole, first, second = (RunningMeanStd((3,)) for _ in range(3))
    for running, part in ((whole, data), (first, data[:share]), (second, data[share:])):
        for batch in part.split(50):
            running.update(batch)
    before = copy.deepcopy(second)
    first.merge(second)
    assert first.count == whole.count
    torch.testing.assert_close(first.mean, whole.mean, rtol=1e-10, atol=0)
    torch.testing.assert_close(first.m2, whole.m2, rtol=1e-10, atol=0)
    assert second.count == before.count
    assert second.mean.equal(before.mean), "the other one is left alone"


def test_normalised_stream_has_mean_0_and_variance_1():
    data = stream(1000).float()
    running = RunningMeanStd((3,), epsilon=0.0)
    running.update(data)
    z = running.normalise(data.double())
    assert z.mean(0).abs().max() < 1e-9
    assert (z.square().mean(0) - 1).abs().max() < 1e-9
    assert running.normalise(data).dtype == torch.float32


def test_epsilon_is_added_to_the_variance():
    running = RunningMeanStd((), epsilon=3.0)
    running.update(torch.tensor([-1.0, 1.0]))
    assert running.normalise(torch.tensor(5.0, dtype=torch.float64)).item() == 2.5  # 5 / sqrt(1 + 3)


def test_clip_and_types():
    running = RunningMeanStd((2,))
    running.update(torch.tensor([[0.0, 0.0], [2.0, 2.0]]))
    assert running.normalise(torch.tensor([[100.0, -100.0]]), clip=5.0).tolist() == [[5.0, -5.0]]
    assert running.normalise(torch.tensor([[1, 3]], dtype=torch.uint8)).tolist() == [[0.0, pytest.approx(2.0)]]
    assert running.normalise(torch.zeros(4, 7, 2)).shape == (4, 7, 2)


def test_before_data_nothing_is_changed():
    x = torch.tensor([3.0, -2.0])
    torch.testing.assert_close(RunningMeanStd((2,)).normalise(x), x)


def test_a_restored_one_goes_on_bit_for_bit():
    data = stream(200)
    whole = RunningMeanStd((3,))
    whole.update(data[:100])
    file = io.BytesIO()
    torch.save(whole.state_dict(), file)
    kept = copy.deepcopy(whole.state_dict())
    file.seek(0)
    restored = RunningMeanStd((3,))
    restored.load_state_dict(torch.load(file, weights_only=True))
    for running in (whole, restored):
        running.update(data[100:])
    assert restored.count == whole.count == 200
    assert restored.mean.equal(whole.mean)
    assert restored.m2.equal(whole.m2)
    assert kept["mean"].equal(data[:100].mean(0))


def test_what_cannot_be_normalised_is_refused():
    running = RunningMeanStd((2,))
    with pytest.raises(FloatingPointError, match="not finite"):
        running.update(torch.tensor([[1.0, float("nan")]]))
    assert running.count == 0
    with pytest.raises(ValueError, match=r"items of shape \[2\], got \[3\]"):
        running.update(torch.zeros(5, 3))
    with pytest.raises(ValueError, match=r"shape \[3\], this one for \[2\]"):
        running.load_state_dict(RunningMeanStd((3,)).state_dict())
