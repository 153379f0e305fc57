import pytest
import torch

from lightning_modules.dfm.path import DiscretePath
from lightning_modules.dfm.schedulers import PolynomialScheduler
from lightning_modules.dfm.sources import MaskSource, UniformSource


def test_each_token_is_data_with_probability_kappa():
    path = DiscretePath(PolynomialScheduler(2))
    x_0, x_1 = torch.full((3, 20_000), 4), torch.arange(20_000).expand(3, -1) % 4
    t = torch.tensor([0.0, 0.6, 1.0])
    found = path.sample(x_0, x_1, t, generator=torch.Generator().manual_seed(0))
    arrived = found.x_t == x_1
    assert torch.equal(found.x_t[~arrived], x_0[~arrived])
    share = arrived.double().mean(dim=1)
    assert share[0] == 0
    assert share[1].item() == pytest.approx(0.36, abs=0.014)
    assert share[2] == 1
    assert found.x_t.dtype == torch.int64


def test_seeds_make_a_point_independent_of_its_batch():
    path = DiscretePath(PolynomialScheduler())
    seeds = torch.arange(6)
    x_1, t = torch.arange(60).view(6, 10) % 4, torch.full((6,), 0.5)
    x_0 = UniformSource(4).init((6, 10), seeds=seeds)
    whole = path.sample(x_0, x_1, t, seeds=seeds).x_t
    part = path.sample(x_0[2:5], x_1[2:5], t[2:5], seeds=seeds[2:5]).x_t
    assert torch.equal(whole[2:5], part)
    assert torch.equal(UniformSource(4).init((3, 10), seeds=seeds[2:5]), x_0[2:5])
    assert not torch.equal(whole, x_1)
    assert not torch.equal(whole, x_0)


def test_sources():
    uniform, mask = UniformSource(5), MaskSource(5)
    assert (uniform.vocabulary_size, uniform.mask_id) == (5, None)
    assert (mask.vocabulary_size, mask.mask_id) == (6, 5)
    assert (mask.init((2, 3)) == 5).all()
    drawn = uniform.init((100, 100), generator=torch.Generator().manual_seed(0))
    seeded = uniform.init((100, 100), seeds=torch.arange(100))
    for x in (drawn, seeded):
        assert x.dtype == torch.int64
        assert torch.allclose(x.flatten().bincount(minlength=5) / 10_000, torch.tensor(0.2), atol=0.02)
    with pytest.raises(ValueError, match="at least two tokens"):
        MaskSource(1)


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="a time for each sample"):
        DiscretePath(PolynomialScheduler()).sample(torch.zeros(2, 3), torch.zeros(2, 3), torch.zeros(3))
