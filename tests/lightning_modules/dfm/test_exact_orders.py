import math

import pytest
import torch
from flow_laws import DELTA, markov_flow, random_flow

from lightning_modules.dfm.exact_law import tv
from lightning_modules.dfm.schedulers import CosineScheduler, PolynomialScheduler

pytestmark = pytest.mark.filterwarnings("ignore:ordinal tau-leaping")

FLOWS = {kind: markov_flow(kind) for kind in ("uniform", "mask")}
T_END = 1 - DELTA


def distances(kind: str, name: str, steps: tuple[int, ...], **options: object) -> list[float]:
    flow = FLOWS[kind]
    return [tv(flow.target(T_END), flow.exact.propagate(name, flow.grid(n), nodes=3, **options)) for n in steps]


@pytest.mark.parametrize("kind", ["uniform", "mask"])
@pytest.mark.parametrize("name", ["euler", "tc", "tau_leaping"])
def test_frozen_posteriors_are_of_first_order(kind: str, name: str):
    coarse, fine = distances(kind, name, (16, 32))
    assert 1.9 < coarse / fine < 2.1


def test_location_correction_is_of_second_order_for_masks():
    found = distances("mask", "lc", (16, 32, 64))
    assert found == pytest.approx([9.126e-4, 2.30e-4, 5.75e-5], rel=2e-3)
    assert all(3.9 < coarse / fine < 4.05 for coarse, fine in zip(found[:-1], found[1:], strict=True))


def test_location_correction_is_of_first_order_for_a_uniform_source():
    coarse, fine = distances("uniform", "lc", (16, 32))
    assert 1.9 < coarse / fine < 2.0


@pytest.mark.parametrize("n_steps", [1, 3])
def test_one_masked_token_needs_only_the_correction_of_time(n_steps: int):
    flow = random_flow("mask", 4, 1)
    assert tv(flow.target(T_END), flow.exact.propagate("tc", flow.grid(n_steps))) < 1e-12
    assert tv(flow.target(T_END), flow.exact.propagate("euler", flow.grid(n_steps))) > 0.05


def test_two_masked_tokens_need_one_corrected_step():
    flow = random_flow("mask", 4, 2)
    assert tv(flow.target(T_END), flow.exact.propagate("lc", flow.grid(1), nodes=24)) < 1e-12
    assert tv(flow.target(T_END), flow.exact.propagate("tc", flow.grid(1))) > 0.05


@pytest.mark.parametrize(("n_steps", "left"), [(4, 0.121418), (8, 0.082188), (16, 0.065089)])
def test_masks_that_are_left(n_steps: int, left: float):
    flow = random_flow("mask", 4, 1)
    for name in ("tc", "lc"):
        assert flow.exact.propagate(name, flow.grid(n_steps))[-1].item() == pytest.approx(DELTA, abs=1e-12)
    euler = flow.exact.propagate("euler", flow.grid(n_steps))[-1].item()
    assert euler == pytest.approx(math.exp(-n_steps * (1 - DELTA ** (1 / n_steps))), abs=1e-12)
    assert euler == pytest.approx(left, abs=1e-6)


@pytest.mark.parametrize("kind", ["uniform", "mask"])
def test_corrected_samplers_do_not_see_the_clock(kind: str):
    flows = [random_flow(kind, 3, 3, scheduler) for scheduler in (PolynomialScheduler(), PolynomialScheduler(2), CosineScheduler())]
    for name in ("tc", "lc"):
        laws = [flow.exact.propagate(name, flow.grid(3)) for flow in flows]
        starts = [flow.source.init((2000, 3), torch.Generator().manual_seed(1)) for flow in flows]
        drawn = [
            flow.solver(name).sample(start, n_steps=3, generator=torch.Generator().manual_seed(2)).x
            for flow, start in zip(flows, starts, strict=True)
        ]
        for other in (1, 2):
            assert tv(laws[0], laws[other]) < 1e-12
            assert torch.equal(drawn[0], drawn[other])
    euler = [flow.exact.propagate("euler", flow.grid(3)) for flow in flows]
    assert min(tv(euler[0], euler[1]), tv(euler[1], euler[2])) > 1e-3


@pytest.mark.parametrize("kind", ["uniform", "mask"])
def test_number_of_jumps_before_the_renewal(kind: str):
    flow = random_flow(kind, 3, 3)
    grid = flow.grid(2)
    laws = [flow.exact.propagate("lc", grid, nodes=16, j=j) for j in (1, 2, 3, 4)]
    assert tv(laws[3], flow.exact.propagate("tc", grid)) < 1e-12
    assert torch.equal(laws[0], flow.exact.propagate("lc", grid, nodes=16))
    gaps = [tv(found, flow.target(T_END)) for found in laws]
    assert gaps[0] < gaps[1] < gaps[2]
    if kind == "mask":
        assert tv(laws[2], laws[3]) < 1e-12, "after the last mask has fallen there is nothing to renew"
    assert all(found.sum().item() == pytest.approx(1, abs=1e-9) for found in laws)
