import pytest
import torch
from torch import Tensor

from lightning_modules.r2r2.categorical_value import categorical_target, cross_entropy, expected_value, pessimistic, two_hot

BINS = torch.linspace(-5, 5, 101, dtype=torch.float64)


def distributions(rows: int, seed: int = 0) -> Tensor:
    return (3 * torch.randn(rows, 101, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)).softmax(-1)


def by_loop(values: Tensor, probabilities: Tensor, bins: Tensor) -> Tensor:
    """Share every probability by hand."""
    projected = torch.zeros_like(probabilities)
    gap = (bins[1] - bins[0]).item()
    for row in range(len(values)):
        for value, mass in zip(values[row].tolist(), probabilities[row].tolist(), strict=True):
            value = min(max(value, bins[0].item()), bins[-1].item())
            for k, bin in enumerate(bins.tolist()):
                projected[row, k] += mass * max(0.0, 1 - abs(value - bin) / gap)
    return projected


def test_probability_is_shared_by_neighbours():
    bins = torch.tensor([-1.0, 0.0, 1.0])
    values, mass = torch.tensor([[-0.25, 0.5, 7.0], [1.0, -9.0, 0.0]]), torch.tensor([[0.4, 0.4, 0.2], [0.5, 0.3, 0.2]])
    assert torch.allclose(two_hot(values, mass, bins), torch.tensor([[0.1, 0.5, 0.4], [0.3, 0.2, 0.5]]))


def test_it_equals_the_triangular_kernel():
    values = 4 * torch.randn(6, 101, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert (values.abs() > 5).any()
    torch.testing.assert_close(two_hot(values, distributions(6), BINS), by_loop(values, distributions(6), BINS))


def test_the_mean_follows_the_bellman_backup():
    g = torch.Generator().manual_seed(2)
    probabilities = distributions(64)
    probabilities[:, :20] = probabilities[:, 81:] = 0  # nothing is cut at the ends
    probabilities /= probabilities.sum(-1, keepdim=True)
    reward, cost = (torch.rand(2, 64, generator=g, dtype=torch.float64) - 0.5).unbind()
    goes_on = torch.zeros(64, dtype=torch.bool)
    target = categorical_target(probabilities, reward, goes_on, cost, 0.9, BINS)
    torch.testing.assert_close(target.sum(-1), torch.ones(64, dtype=torch.float64))
    torch.testing.assert_close(target @ BINS, reward + 0.9 * (probabilities @ BINS - cost), atol=1e-6, rtol=0)


def test_only_a_terminal_state_cuts_the_bootstrap():
    reward = torch.tensor([0.3, 0.3, 7.0], dtype=torch.float64)
    terminated = torch.tensor([False, True, True])
    probabilities = distributions(1).expand(3, -1)
    target = categorical_target(probabilities, reward, terminated, torch.full_like(reward, 0.2), 0.9, BINS)
    means = (target @ BINS).tolist()
    assert means[1:] == pytest.approx([0.3, 5.0])
    assert means[0] != pytest.approx(0.3, abs=1e-3)
    assert target[1, 53].item() == pytest.approx(1.0)  # 0.3 is bin 53
    assert target[2, 100].item() == pytest.approx(1.0)


def test_values_on_the_bins_stay_as_they_are():
    bins = torch.linspace(-5, 5, 101)
    probabilities = distributions(4).float()
    torch.testing.assert_close(two_hot(bins.expand(4, -1), probabilities, bins), probabilities, atol=1e-5, rtol=0)


def test_expected_value_and_cross_entropy_by_hand():
    logits = torch.tensor([[[0.2, 0.3, 0.5], [1.0, 1.0, 2.0]], [[1.0, 1.0, 1.0], [0.5, 0.25, 0.25]]]).log()
    bins = torch.tensor([-1.0, 0.0, 1.0])
    assert expected_value(logits, bins).flatten().tolist() == pytest.approx([0.3, 0.25, 0.0, -0.25], abs=1e-6)
    target = torch.tensor([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    by_hand = -(torch.tensor([0.5, 0.25]).log().mean() + torch.tensor([1 / 3, 0.5]).log().mean())
    assert cross_entropy(logits, target).item() == pytest.approx(by_hand.item(), rel=1e-6)


def test_the_pessimist_is_chosen_for_each_transition():
    bins = torch.tensor([-1.0, 0.0, 1.0])
    probabilities = torch.tensor([[[0.1, 0.1, 0.8], [0.8, 0.1, 0.1]], [[0.3, 0.3, 0.4], [0.2, 0.2, 0.6]]])
    torch.testing.assert_close(pessimistic(probabilities.log(), bins), torch.stack([probabilities[1, 0], probabilities[0, 1]]))
    torch.testing.assert_close(pessimistic(probabilities[:1].log(), bins), probabilities[0])
