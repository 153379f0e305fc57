"""The choice of a learning rate and the ranks, by hand-made records."""

import pytest

from benchmarks.methods.gesc.heterophily import choose_rate, mean_ranks
from benchmarks.results import Record


def record(variant: str, metric: str, seed: int, value: float) -> Record:
    return Record("texas", variant, metric, seed, value, 0, 0.0, 0)


def test_the_rate_is_chosen_by_mean_validation_accuracy():
    validation = {0.01: (0.9, 0.1), 0.005: (0.6, 0.7), 0.001: (0.5, 0.5)}
    test = {0.01: (0.99, 0.99), 0.005: (0.4, 0.2), 0.001: (0.95, 0.95)}
    records = [record("mlp", f"val@{rate}", seed, v) for rate, values in validation.items() for seed, v in enumerate(values, 1)]
    records += [record("mlp", f"accuracy@{rate}", seed, v) for rate, values in test.items() for seed, v in enumerate(values, 1)]
    chosen = choose_rate(records)
    assert {(r.metric, r.seed): r.value for r in chosen} == {
        ("val", 1): 0.6,
        ("val", 2): 0.7,
        ("accuracy", 1): 0.4,
        ("accuracy", 2): 0.2,
    }


def test_ranks_are_means_over_the_graphs():
    accuracies = {"texas": {"mlp": 0.8, "gcn": 0.5, "gesc": 0.8}, "cora": {"mlp": 0.7, "gcn": 0.9, "gesc": 0.8}}
    records = [record(model, name, 1, value) for name, found in accuracies.items() for model, value in found.items()]
    ranks = {r.variant: r.value for r in mean_ranks(records)}
    assert ranks == pytest.approx({"mlp": (1.5 + 3) / 2, "gcn": (3 + 1) / 2, "gesc": (1.5 + 2) / 2})
