import math

import pytest
import torch
from torchmetrics import Metric

from datamodules import MarkovBlocksDataModule
from lightning_modules.dfm.judging import block_law, chain_judges, image_judge, judgement, neighbour_judges
from lightning_modules.dfm.metrics import ChainNLL, DiscreteTV, NGramTV, cells, chain_log_likelihood
from lightning_modules.generative.image_classifier import ImageClassifier

INITIAL = torch.tensor([0.75, 0.25], dtype=torch.float64)
TRANSITION = torch.tensor([[0.9, 0.1], [0.5, 0.5]], dtype=torch.float64)


def updated_in_parts(build, *parts: tuple) -> tuple[float, float]:
    """The value of one metric that saw all, and of several ranks' metrics, merged as torchmetrics does it."""
    whole: Metric = build()
    ranks = [build() for _ in parts]
    for part, own in zip(parts, ranks, strict=True):
        whole.update(*part)
        own.update(*part)
    merged = build()
    for name in whole._defaults:
        setattr(merged, name, sum(getattr(own, name) for own in ranks))
    merged._update_count = 1
    return whole.compute().item(), merged.compute().item()


def test_likelihood_by_hand():
    tokens = torch.tensor([[0, 1, 1, 0], [1, 0, 0, 0]])
    one = chain_log_likelihood(tokens, INITIAL, TRANSITION, 4)
    assert one.tolist() == pytest.approx([math.log(0.75 * 0.1 * 0.5 * 0.5), math.log(0.25 * 0.5 * 0.9 * 0.9)])
    two = chain_log_likelihood(tokens, INITIAL, TRANSITION, 2)
    assert two.tolist() == pytest.approx([math.log(0.75 * 0.1 * 0.25 * 0.5), math.log(0.25 * 0.5 * 0.75 * 0.9)])
    with pytest.raises(ValueError, match="blocks of 3"):
        chain_log_likelihood(tokens, INITIAL, TRANSITION, 3)
    expected = -one.mean().item() / 4 - 0.5
    values = updated_in_parts(lambda: ChainNLL(INITIAL, TRANSITION, 4, entropy=0.5), (tokens[:1],), (tokens[1:],))
    assert values == pytest.approx((expected, expected))


def test_total_variation_by_hand():
    values = updated_in_parts(
        lambda: DiscreteTV(torch.tensor([0.5, 0.25, 0.25, 0.0])), (torch.tensor([0, 0]),), (torch.tensor([1, 3]),)
    )
    assert values == pytest.approx((0.25, 0.25))


def test_pairs_by_hand():
    real, made = torch.tensor([[0, 1, 1]]), torch.tensor([[0, 1, 0], [0, 1, 1]])
    # real: 01, 11 with 1/2 each; made: 01 1/2, 10 1/4, 11 1/4
    values = updated_in_parts(lambda: NGramTV(2, 2), (real, True), (made, False))
    assert values == pytest.approx((0.25, 0.25))
    assert cells(torch.tensor([[1, 0, 2]]), 3).tolist() == [11]
    metric = NGramTV(2, 2)
    metric.update(real, True)
    with pytest.raises(ValueError, match="one of both kinds"):
        metric.compute()
    with pytest.raises(ValueError, match="order=3"):
        NGramTV(50_000, 3)


def test_judges_of_a_known_law_know_its_samples():
    chain = MarkovBlocksDataModule(blocks=2).chain
    law = block_law(chain)
    assert law.view(8, 8, 8).sum(dim=2).flatten().tolist() == pytest.approx(
        (torch.from_numpy(chain.initial_S)[:, None] * torch.from_numpy(chain.transition_SS)).flatten().tolist()
    )
    assert -(law * law.log()).sum().item() == pytest.approx(6.0279478375, abs=1e-8)
    import numpy as np

    right = torch.from_numpy(chain.sample(20_000, np.random.default_rng(0)))
    wrong = torch.randint(8, (20_000, 6), generator=torch.Generator().manual_seed(0))
    judges = chain_judges(chain) | neighbour_judges(8, 6, [right[:10_000], right[10_000:]])
    own, other = judgement(judges, right.split(7_000)), judgement(judges, [wrong])
    noise = (law * (1 - law) / (2 * math.pi * 20_000)).sqrt().sum().item()
    assert own["sample_tv"].item() == pytest.approx(noise, rel=0.1)
    assert own["nll_excess"].abs() < 0.01
    assert own["bigram_tv"] == 0
    assert other["sample_tv"] > 0.2
    assert other["nll_excess"] > 0.1
    assert other["trigram_tv"] > 0.1
    assert judgement(judges, [right])["sample_tv"].item() == own["sample_tv"].item(), "a judge stays as it was"
    assert neighbour_judges(3_000, 6, []) == {}


def test_images_are_judged_by_features():
    torch.manual_seed(0)
    tokens = torch.randint(4, (60, 64))

    def as_images(x: torch.Tensor) -> torch.Tensor:
        return (2 * x.float() / 3 - 1).unflatten(1, (1, 8, 8))

    judge = image_judge(ImageClassifier().eval(), as_images(tokens), as_images)
    assert judgement({"distance": judge}, tokens.split(20))["distance"].item() == pytest.approx(0, abs=1e-4)
    assert judgement({"distance": judge}, [torch.zeros_like(tokens)])["distance"] > 0.01
