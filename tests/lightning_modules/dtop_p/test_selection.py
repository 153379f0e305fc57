import math

import pytest
import torch

from lightning_modules.dtop_p.selection import gate_weights, top_k_mask, top_p_mask

row = torch.tensor([[0.15, 0.5, 0.05, 0.3]])


def random_probs(rows: int, experts: int, seed: int = 0) -> torch.Tensor:
    logits = torch.randn(rows, experts, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (2 * logits).softmax(-1)


@pytest.mark.parametrize(("p", "count"), [(0.4, 1), (0.5, 1), (0.51, 2), (0.8, 2), (0.81, 3), (0.96, 4), (1e-6, 1), (1.0, 4)])
def test_by_hand(p, count):
    best_first = torch.tensor([1, 3, 0, 2])
    mask = top_p_mask(row, torch.tensor(p))
    assert mask[0].nonzero().flatten().tolist() == sorted(best_first[:count].tolist())


def test_gates_by_hand():
    mask = top_p_mask(row, 0.6)
    torch.testing.assert_close(gate_weights(row, mask), torch.tensor([[0.0, 0.625, 0.0, 0.375]]))
    torch.testing.assert_close(gate_weights(row, mask, renormalize=False), torch.tensor([[0.0, 0.5, 0.0, 0.3]]))
    assert not gate_weights(row, torch.zeros_like(mask)).any()


def test_smallest_set_that_holds_the_mass():
    probs, generator = random_probs(1000, 12), torch.Generator().manual_seed(1)
    for p in torch.rand(5, generator=generator, dtype=torch.float64):
        mask = top_p_mask(probs, p)
        kept = probs.masked_fill(~mask, 0.0)
        mass = kept.sum(-1)
        smallest = kept.masked_fill(~mask, 2.0).min(-1).values
        assert (mass >= p - 1e-12).all()
        assert (mass - smallest < p).all()
        assert (smallest >= probs.masked_fill(mask, 0.0).max(-1).values).all()


def test_count_grows_with_the_mass():
    probs = random_probs(200, 16)
    counts = torch.stack([top_p_mask(probs, p).sum(-1) for p in torch.linspace(0, 1, 41, dtype=torch.float64)])
    assert (counts.diff(dim=0) >= 0).all()
    assert (counts[0] == 1).all()
    assert (counts[-1] == 16).all()


def test_all_experts_even_where_rounding_hides_them():
    assert top_p_mask(torch.tensor([[1.0, 1e-20, 0.0]]), 1.0).all()


@pytest.mark.parametrize("p", [0.05, 0.33, 0.71, 0.99])
def test_uniform_row(p):
    assert top_p_mask(torch.full((3, 8), 1 / 8), p).sum(-1).tolist() == [math.ceil(8 * p)] * 3


def test_cap():
    probs = random_probs(100, 16)
    mask = top_p_mask(probs, 0.9, k_max=3)
    free = top_p_mask(probs, 0.9)
    assert torch.equal(mask, free & top_k_mask(probs, 3))
    assert (free.sum(-1) > 3).any()
    assert (free.sum(-1) < 3).any() or (mask.sum(-1) == 3).all()


def test_top_k():
    assert top_k_mask(row, 2).tolist() == [[False, True, False, True]]
    probs = random_probs(50, 9)
    mask = top_k_mask(probs, 4)
    assert (mask.sum(-1) == 4).all()
    assert (probs.masked_fill(~mask, 2.0).min(-1).values >= probs.masked_fill(mask, 0.0).max(-1).values).all()


def test_gradient_of_the_gates():
    """Numerator and denominator both carry it; what is not chosen gets none."""
    probs = row.double().requires_grad_()
    mask = top_p_mask(probs, 0.6)
    (gradient,) = torch.autograd.grad(gate_weights(probs, mask)[0, 1], probs)
    torch.testing.assert_close(gradient, torch.tensor([[0.0, 0.3 / 0.64, 0.0, -0.5 / 0.64]], dtype=torch.float64))
