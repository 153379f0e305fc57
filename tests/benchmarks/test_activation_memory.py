import pytest
import torch

from benchmarks.allocated_memory import allocated_peak
from benchmarks.calculations.activation_memory import METRIC, peak_memory


def test_peak_of_known_allocations():
    x = torch.ones(1000, 1000)

    def two_products_and_their_sum() -> None:
        first = x @ x
        second = x @ first
        first += second

    assert allocated_peak(two_products_and_their_sum) == pytest.approx(8e6, rel=0.01)


def test_recomputing_needs_less_and_hardly_grows():
    keep, recompute = peak_memory("keep", 0), peak_memory("every_5", 0)
    assert keep[METRIC] > 2 * keep[f"{METRIC}_at_10"]
    assert recompute[METRIC] < 1.1 * recompute[f"{METRIC}_at_10"] < keep[f"{METRIC}_at_10"]
