import pytest
import torch
from scipy.stats import trim_mean

from lightning_modules.rl.episode_statistics import EpisodeStatistics, interquartile_mean


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 10, 23])
def test_interquartile_mean_is_a_trimmed_mean(count: int):
    values = torch.randn(count, generator=torch.Generator().manual_seed(count), dtype=torch.float64)
    assert interquartile_mean(values).item() == pytest.approx(trim_mean(values.numpy(), 0.25), abs=1e-12)


def test_by_hand():
    statistics = EpisodeStatistics()
    statistics.update(torch.tensor([1.0, 100.0]), torch.tensor([3, 5]))
    statistics.update(torch.tensor([2.0, 5.0]), torch.tensor([4, 8]))
    found = {name: value.item() for name, value in statistics.compute().items()}
    expected = {"return_mean": 27.0, "return_min": 1.0, "return_max": 100.0, "return_iqm": 3.5, "length": 5.0}
    assert found == pytest.approx(expected | {"return_std": ((26**2 + 73**2 + 25**2 + 22**2) / 4) ** 0.5})
