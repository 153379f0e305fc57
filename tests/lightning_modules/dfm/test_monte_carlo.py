"""Samples against their exact laws."""

import pytest
import torch
from flow_laws import p_value, random_flow

from lightning_modules.dfm.schedulers import PolynomialScheduler

pytestmark = pytest.mark.filterwarnings("ignore:ordinal tau-leaping")

COUNT = 200_000
FLOWS = {"uniform": random_flow("uniform", 3, 3), "mask": random_flow("mask", 3, 3, PolynomialScheduler(1.5))}
SAMPLERS = [
    ("tau_leaping", {}),
    ("tau_leaping", {"mode": "categorical"}),
    ("euler", {}),
    ("euler", {"rate": "conditional"}),
    ("tc", {}),
    ("tc", {"rate": "conditional"}),
    ("lc", {}),
    ("lc", {"j": 2}),
    ("theta_rk2", {"theta": 0.7}),
    ("theta_trap", {"theta": 0.4}),
    ("uniformization", {}),
]
CASES = [(kind, *sampler) for kind in FLOWS for sampler in SAMPLERS] + [("mask", "first_hitting", {})]


@pytest.mark.parametrize(("kind", "name", "options"), CASES)
def test_samples_have_the_exact_law(kind: str, name: str, options: dict):
    flow = FLOWS[kind]
    exact = name in ("uniformization", "first_hitting")
    n_steps = 1 if exact else 2
    law = flow.target(flow.grid(1).t[-1].item()) if exact else flow.exact.propagate(name, flow.grid(n_steps), nodes=16, **options)
    generator = torch.Generator().manual_seed(3)
    solver = flow.solver(name, **options)
    batches = [
        solver.sample(flow.source.init((COUNT // 8, 3), generator), n_steps=n_steps, generator=generator, final="state").x
        for _ in range(8)
    ]
    assert p_value(torch.cat(batches), law, flow.source.vocabulary_size) > 1e-4


@pytest.mark.parametrize("kind", FLOWS)
def test_counted_numbers_have_the_exact_law_too(kind: str):
    flow = FLOWS[kind]
    seeds = torch.arange(50_000)
    for name in ("lc", "uniformization"):
        found = flow.solver(name).sample(flow.source.init((50_000, 3), seeds=seeds), n_steps=2, seeds=seeds, final="state")
        law = flow.exact.propagate(name, flow.grid(2), nodes=16)
        assert p_value(found.x, law, flow.source.vocabulary_size) > 1e-4


def test_the_test_sees_a_small_difference():
    flow = FLOWS["uniform"]
    found = flow.solver("tc").sample(
        flow.source.init((COUNT, 3), torch.Generator().manual_seed(0)), n_steps=4, generator=torch.Generator().manual_seed(1)
    )
    assert p_value(found.x, flow.exact.propagate("lc", flow.grid(4)), 3) < 1e-4
