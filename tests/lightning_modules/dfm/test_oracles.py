import itertools

import pytest
import torch
from flow_laws import source

from lightning_modules.dfm.oracles import MarkovOracle, TableOracle
from lightning_modules.dfm.path import DiscretePath
from lightning_modules.dfm.schedulers import CosineScheduler, PolynomialScheduler

GENERATOR = torch.Generator().manual_seed(0)
INITIAL = torch.rand(3, generator=GENERATOR, dtype=torch.float64).softmax(0)
TRANSITION = (3 * torch.rand(3, 3, generator=GENERATOR, dtype=torch.float64)).softmax(1)
CHAIN = torch.einsum("a,ab,bc,cd->abcd", INITIAL, TRANSITION, TRANSITION, TRANSITION)


def brute_force(x: list[int], kappa: float, kind: str) -> torch.Tensor:
    """Add the joint probability of every data sequence to the values that it has."""
    p = torch.zeros(4, 3, dtype=torch.float64)
    for data in itertools.product(range(3), repeat=4):
        weight = CHAIN[data].item()
        for seen, true in zip(x, data, strict=True):
            if kind == "mask":
                weight *= (1 - kappa) if seen == 3 else kappa * (seen == true)
            else:
                weight *= (1 - kappa) / 3 + kappa * (seen == true)
        for token, value in enumerate(data):
            p[token, value] += weight
    return p / p.sum(dim=1, keepdim=True)


@pytest.mark.parametrize("kind", ["uniform", "mask"])
def test_both_oracles_equal_brute_force(kind: str):
    start, scheduler = source(kind, 3), CosineScheduler()
    size = start.vocabulary_size
    x = torch.cartesian_prod(*[torch.arange(size)] * 4)[:: 1 if kind == "uniform" else 3]
    t = torch.linspace(0.05, 0.95, len(x), dtype=torch.float64)
    right = torch.stack([brute_force(s.tolist(), scheduler.kappa(time).item(), kind) for s, time in zip(x, t, strict=True)])
    for oracle in (MarkovOracle(INITIAL, TRANSITION, start, scheduler), TableOracle(CHAIN, start, scheduler)):
        p = oracle(x=x, t=t)
        assert p.shape == (len(x), 4, size)
        assert torch.allclose(p[..., :3], right, atol=1e-10, rtol=0)
        assert torch.allclose(p.sum(dim=-1), torch.ones(()).double())
        if kind == "mask":
            known = x != 3
            assert torch.equal(p[known], torch.eye(4, dtype=torch.float64)[x[known]])
            assert known.any()


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch):
    oracle = TableOracle(CHAIN, source("uniform", 3), PolynomialScheduler())
    x, t = torch.randint(3, (50, 4), generator=GENERATOR), torch.rand(50, generator=GENERATOR)
    whole = oracle(x, t)
    monkeypatch.setattr("lightning_modules.dfm.oracles.LARGEST_CHUNK", 27 * 7)
    assert torch.allclose(oracle(x, t), whole)


def test_long_chains_stay_finite():
    oracle = MarkovOracle(INITIAL, TRANSITION, source("uniform", 3), PolynomialScheduler())
    p = oracle(torch.randint(3, (2, 3000), generator=GENERATOR), torch.tensor([0.1, 0.999]))
    assert torch.allclose(p.sum(dim=-1), torch.ones(()).double())


@pytest.mark.parametrize("kind", ["uniform", "mask"])
def test_marginal_is_the_law_of_path_samples(kind: str):
    start, count, t = source(kind, 3), 100_000, 0.6
    oracle = TableOracle(CHAIN, start, PolynomialScheduler(2))
    data = torch.multinomial(CHAIN.flatten(), count, replacement=True, generator=GENERATOR)
    x_1 = torch.stack(torch.unravel_index(data, CHAIN.shape), dim=1)
    x_t = DiscretePath(PolynomialScheduler(2)).sample(
        start.init(x_1.shape, generator=GENERATOR), x_1, torch.full((count,), t), generator=GENERATOR
    )
    marginal = oracle.marginal(t)
    assert marginal.sum().item() == pytest.approx(1)
    size = start.vocabulary_size
    cells = (x_t.x_t * size ** torch.arange(3, -1, -1)).sum(dim=1)
    found = cells.bincount(minlength=size**4) / count
    assert (found - marginal.flatten()).abs().max() < 5 * (marginal.max() / count).sqrt()


def test_laws_that_are_none_are_refused():
    start = source("uniform", 3)
    with pytest.raises(ValueError, match="3 entries along every axis"):
        TableOracle(torch.full((3, 4), 1 / 12), start, PolynomialScheduler())
    with pytest.raises(ValueError, match="sum to 1"):
        TableOracle(torch.ones(3, 3), start, PolynomialScheduler())
    with pytest.raises(ValueError, match="every row"):
        MarkovOracle(INITIAL, TRANSITION.T * 1.5, start, PolynomialScheduler())
    with pytest.raises(ValueError, match=r"transitions \[3, 3\]"):
        MarkovOracle(INITIAL[:2], TRANSITION, start, PolynomialScheduler())
