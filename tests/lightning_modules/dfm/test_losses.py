import math

import numpy as np
import pytest
import torch
from flow_laws import Flow, markov_flow

from lightning_modules.dfm.losses import MaskedCrossEntropy, MixtureGeneralizedKL
from lightning_modules.dfm.path import DiscretePath
from lightning_modules.dfm.posterior import CarryOverPosterior
from lightning_modules.dfm.schedulers import CosineScheduler, PolynomialScheduler

GENERATOR = torch.Generator().manual_seed(0)
LOGITS = torch.randn(5, 4, 3, generator=GENERATOR, dtype=torch.float64)
DATA = torch.randint(3, (5, 4), generator=GENERATOR)
TIMES = torch.rand(5, generator=GENERATOR, dtype=torch.float64)


def bound(flow: Flow) -> float:
    """Integrate the expected loss of the exact posterior over time, summed over tokens."""
    loss = MixtureGeneralizedKL(flow.path, reduction="none")
    x = flow.exact.states
    points, weights = np.polynomial.legendre.leggauss(12)
    edges = [0.0, 1.0, 2.0, 4.0, 7.0, 12.0, 20.0]
    total = 0.0
    for low, high in zip(edges[:-1], edges[1:], strict=True):
        for point, weight in zip(points, weights, strict=True):
            tau = (low + high) / 2 + (high - low) / 2 * point
            t = -math.expm1(-tau)
            times = torch.full((len(x),), t, dtype=torch.float64)
            p = flow.oracle(x, times)
            expected = sum(
                p[..., value] * loss(p.log(), torch.full_like(x, value), x, times) for value in range(flow.source.num_tokens)
            )
            total += weight * (high - low) / 2 * math.exp(-tau) * (flow.target(t) @ expected.sum(dim=1)).item()
    return total


def test_masked_bound_is_the_entropy_of_the_data():
    flow = markov_flow("mask")
    entropy = -torch.xlogy(flow.table, flow.table).sum().item()
    assert entropy == pytest.approx(6.0279478375, abs=1e-9)
    assert bound(flow) == pytest.approx(entropy, abs=2e-7)


def test_uniform_bound_is_larger():
    assert bound(markov_flow("uniform")) == pytest.approx(7.852883, abs=1e-6)


def test_generalised_divergence_by_hand():
    p = torch.tensor([[[0.2, 0.5, 0.3], [0.2, 0.5, 0.3]]])
    x_1, x_t, t = torch.tensor([[1, 2]]), torch.tensor([[1, 0]]), torch.tensor([0.75])
    loss = MixtureGeneralizedKL(DiscretePath(PolynomialScheduler()), reduction="none")(p.log(), x_1, x_t, t)
    assert loss.tolist()[0] == pytest.approx([4 * 0.5, -4 * (0.2 + math.log(0.3))], rel=1e-6)
    assert loss.dtype == torch.float32


@pytest.mark.parametrize("scheduler", [PolynomialScheduler(), CosineScheduler()])
def test_with_carry_over_it_is_weighted_cross_entropy(scheduler):
    path = DiscretePath(scheduler)
    x_t = path.sample(torch.full_like(DATA, 3), DATA, TIMES, generator=torch.Generator().manual_seed(1)).x_t
    log_p = CarryOverPosterior(lambda x, t: LOGITS, mask_id=3).log_probabilities(x_t, TIMES)
    weight = scheduler.dkappa(TIMES) / (1 - scheduler.kappa(TIMES))
    entropy = MaskedCrossEntropy(mask_id=3, reduction="none")(log_p, DATA, x_t, TIMES)
    found = MixtureGeneralizedKL(path, reduction="none")(log_p, DATA, x_t, TIMES)
    assert torch.allclose(found, weight.unsqueeze(-1) * entropy)
    assert (found > 0).any()
    assert (found == 0).any()
    assert torch.allclose(entropy[x_t == 3], torch.nn.functional.cross_entropy(LOGITS[x_t == 3], DATA[x_t == 3], reduction="none"))


def test_reductions():
    path, x_t = DiscretePath(PolynomialScheduler()), DATA.flip(0)
    each = MixtureGeneralizedKL(path, "none")(LOGITS, DATA, x_t, TIMES)
    assert torch.allclose(MixtureGeneralizedKL(path)(LOGITS, DATA, x_t, TIMES), each.mean())
    assert torch.allclose(MixtureGeneralizedKL(path, "sum")(LOGITS, DATA, x_t, TIMES), each.sum())
    masked = torch.where(torch.arange(20).view(5, 4) % 3 == 0, 3, DATA)
    counted = MaskedCrossEntropy(3, "none")(LOGITS, DATA, masked)
    assert torch.allclose(MaskedCrossEntropy(3)(LOGITS, DATA, masked), counted.sum() / 7)
    assert torch.allclose(MaskedCrossEntropy()(LOGITS, DATA, masked), -LOGITS.log_softmax(-1).gather(-1, DATA[..., None]).mean())
    with pytest.raises(ValueError, match="reduction='max'"):
        MaskedCrossEntropy(reduction="max")


def test_impossible_data_costs_thirty_nats():
    logits = torch.tensor([[[0.0, -torch.inf, -200.0]]], requires_grad=True)
    loss = MixtureGeneralizedKL(DiscretePath(PolynomialScheduler()), "sum")
    for impossible in (1, 2):
        value = loss(logits, torch.tensor([[impossible]]), torch.tensor([[3 - impossible]]), torch.tensor([0.0]))
        assert value.item() == pytest.approx(30)
    value.backward()
    assert logits.grad[0, 0, [0, 2]].isfinite().all()
