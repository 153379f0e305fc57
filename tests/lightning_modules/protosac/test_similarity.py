import math

import pytest
import torch

from lightning_modules.protosac.similarity import log_similarity, similarity_logits, squared_distances, top_weights

double = torch.float64


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=double)


def weights(z, P, similarity="log", temperature=0.2):
    return similarity_logits(z, P, similarity, temperature).softmax(dim=-1)


def test_by_hand():
    # D = (0, 1): sim = (log 1e4, log(2 / 1.0001)), weights 1e4 : 2 / 1.0001
    z, P = torch.zeros(1, 2, dtype=double), torch.tensor([[0.0, 0.0], [1.0, 0.0]], dtype=double)
    assert squared_distances(z, P).tolist() == [[0.0, 1.0]]
    assert log_similarity(squared_distances(z, P)).tolist()[0] == pytest.approx([math.log(1e4), math.log(2 / 1.0001)], abs=1e-12)
    assert weights(z, P, temperature=1.0)[0, 0].item() == pytest.approx(1e4 / (1e4 + 2 / 1.0001), abs=1e-12)
    assert weights(z, P, temperature=1.0)[0, 0].item() == pytest.approx(0.99980, abs=5e-6)


def test_distances_are_those_of_cdist():
    z, P = randn(6, 3), randn(5, 3, seed=1)
    torch.testing.assert_close(squared_distances(z, P), torch.cdist(z, P).square())


@pytest.mark.parametrize("temperature", [1.0, 0.2])
def test_log_weights_have_their_closed_form(temperature):
    z, P = randn(7, 3), randn(5, 3, seed=1)
    D = squared_distances(z, P)
    powers = ((D + 1) / (D + 1e-4)) ** (1 / temperature)
    torch.testing.assert_close(weights(z, P, temperature=temperature), powers / powers.sum(1, keepdim=True))


def test_linear_weights_have_their_closed_form():
    z, P = randn(7, 3), randn(5, 3, seed=1)
    sim = log_similarity(squared_distances(z, P))
    torch.testing.assert_close(weights(z, P, "linear"), sim / sim.sum(1, keepdim=True))


def test_cosine_weights_have_their_closed_form_and_ignore_lengths():
    z, P = randn(7, 3), randn(5, 3, seed=1)
    cosines = torch.nn.functional.cosine_similarity(z.unsqueeze(1), P.unsqueeze(0), dim=-1)
    torch.testing.assert_close(weights(z, P, "cosine", 0.3), (cosines / 0.3).softmax(dim=1))
    torch.testing.assert_close(weights(3 * z, 0.1 * P, "cosine", 0.3), weights(z, P, "cosine", 0.3))


@pytest.mark.parametrize("similarity", ["log", "linear", "cosine"])
def test_weights_are_a_distribution(similarity):
    w = weights(randn(20, 4).float(), randn(9, 4, seed=1).float(), similarity)
    assert (w >= 0).all()
    assert (w.sum(dim=1) - 1).abs().max() < 1e-6


@pytest.mark.parametrize("similarity", ["log", "linear"])
def test_nearer_prototypes_never_weigh_less(similarity):
    z, P = randn(20, 4), randn(9, 4, seed=1)
    order = squared_distances(z, P).argsort(dim=1)
    assert (weights(z, P, similarity).gather(1, order).diff(dim=1) <= 0).all()


def test_cold_is_one_hot_of_the_nearest_and_hot_is_uniform():
    z, P = randn(20, 4), randn(9, 4, seed=1)
    nearest = squared_distances(z, P).argmin(dim=1)
    assert torch.equal(weights(z, P, temperature=1e-6), torch.nn.functional.one_hot(nearest, 9).to(double))
    torch.testing.assert_close(weights(z, P, temperature=1e9), torch.full((20, 9), 1 / 9, dtype=double), atol=1e-7, rtol=0)


def test_far_states_keep_their_digits_in_single_precision():
    D = torch.tensor([[1e3, 1e5]])
    exact = torch.log1p((1 - 1e-4) / (D.double() + 1e-4))
    torch.testing.assert_close(log_similarity(D).double(), exact, rtol=1e-6, atol=0)


@pytest.mark.parametrize("similarity", ["log", "linear", "cosine"])
@pytest.mark.parametrize("at", [0.0, 1.0])
def test_gradients_are_finite_on_a_prototype(similarity, at):
    P = randn(4, 3).float()
    P[0] = at
    P.requires_grad_()
    z = torch.full((1, 3), at, requires_grad=True)
    (weights(z, P, similarity) * torch.arange(4.0)).sum().backward()
    assert z.grad.isfinite().all()
    assert P.grad.isfinite().all()
    assert torch.cat([z.grad, P.grad]).abs().max() > 0


def test_top_weights_are_the_largest_renormalised():
    logits = randn(6, 5)
    w = logits.softmax(dim=1)
    log_kept, index = top_weights(logits, 2)
    largest = w.sort(dim=1, descending=True).values[:, :2]
    torch.testing.assert_close(w.gather(1, index), largest)
    torch.testing.assert_close(log_kept.exp(), largest / largest.sum(1, keepdim=True))
