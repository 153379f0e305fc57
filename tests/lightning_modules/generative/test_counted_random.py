import pytest
import torch

from lightning_modules.generative.counted_random import normal, uniform

SPLITMIX64 = (0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F)  # of seed 0, from its authors' code


def test_the_published_generator():
    assert uniform(torch.tensor([0]), 0, (3,))[0].tolist() == [((value >> 12) + 0.5) / 2**52 for value in SPLITMIX64]


def test_numbers_belong_to_the_seed():
    seeds = torch.tensor([5, 2**62 + 1, -3, 0])
    every = normal(seeds, 1, (2, 3))
    assert torch.equal(normal(seeds[[2, 0]], 1, (2, 3)), every[[2, 0]])
    assert torch.equal(normal(seeds, 1, (2, 3)), every)
    assert every.dtype == torch.float32
    assert every.unique().numel() == every.numel()
    assert not torch.isin(normal(seeds, 2, (2, 3)), every).any()
    assert uniform(seeds, 0).shape == (4,)


def test_distribution():
    seeds = torch.arange(200)
    drawn = uniform(seeds, 3, (500,))
    counts = torch.histc(drawn.float(), 20, 0, 1)
    assert ((counts - 5_000).square() / 5_000).sum() < 45  # chi-square with 19 degrees of freedom, p = 0.0007
    bell = normal(seeds, 3, (500,)).double()
    assert bell.mean().item() == pytest.approx(0, abs=0.015)
    assert bell.var().item() == pytest.approx(1, abs=0.02)
    assert bell.pow(4).mean().item() == pytest.approx(3, abs=0.15)
    neighbours = torch.corrcoef(torch.stack([bell[:-1].flatten(), bell[1:].flatten()]))[0, 1]
    streams = torch.corrcoef(torch.stack([bell.flatten(), normal(seeds, 4, (500,)).double().flatten()]))[0, 1]
    places = torch.corrcoef(torch.stack([bell[:, :-1].flatten(), bell[:, 1:].flatten()]))[0, 1]
    assert max(abs(neighbours), abs(streams), abs(places)) < 0.012
