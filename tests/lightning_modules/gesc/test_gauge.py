import pytest
import torch
from gauge_graphs import random_angles, random_graph, random_states

from lightning_modules.gesc import gauge
from lightning_modules.gesc.gauge import dirichlet_energy, gauge_transform, self_parallel_fraction

EDGE_INDEX, THETA = random_graph(duplicates=3, isolated=True)
COLUMNS = EDGE_INDEX.t().tolist()


def test_transport_follows_the_gauge():
    h, phi = random_states(12, 4), random_angles(12)
    turned, theta = gauge_transform(h, THETA, EDGE_INDEX, phi)
    source, target = EDGE_INDEX
    carried = torch.exp(1j * THETA)[:, None] * h[source]
    assert (torch.exp(1j * theta)[:, None] * turned[source] - torch.exp(1j * phi[target])[:, None] * carried).abs().max() < 1e-12
    back, old_theta = gauge_transform(turned, theta, EDGE_INDEX, -phi)
    assert (back - h).abs().max() < 1e-12
    assert (old_theta - THETA).abs().max() < 1e-12


def test_self_parallel_fraction_by_hand():
    h, weight = random_states(12, 4), random_states(3, 16, seed=1).view(3, 4, 4)
    fraction = self_parallel_fraction(h, weight, EDGE_INDEX)
    for value, (j, i) in zip(fraction, COLUMNS, strict=True):
        shares = []
        for head in weight:
            t = head @ h[j]
            shares.append((torch.vdot(h[i], t).abs() / (h[i].norm() * t.norm())) ** 2)
        assert value.item() == pytest.approx(sum(shares).item() / 3)


def test_self_parallel_fraction_is_one_over_d_for_random_maps():
    h, weight = random_states(12, 20), random_states(200, 400, seed=1).view(200, 20, 20)
    assert self_parallel_fraction(h, weight, EDGE_INDEX).mean().item() == pytest.approx(1 / 20, rel=0.05)


@pytest.mark.parametrize("at_a_time", [5, 65536])
@pytest.mark.parametrize("phase", [None, THETA], ids=["trivial", "given"])
def test_dirichlet_energy_by_hand(monkeypatch, at_a_time, phase):
    monkeypatch.setattr(gauge, "EDGES_AT_A_TIME", at_a_time)
    h = random_states(12, 4)
    degree = torch.bincount(EDGE_INDEX[1], minlength=12)
    angles = torch.zeros_like(THETA) if phase is None else phase
    total = sum(
        (h[i] / degree[i].sqrt() - torch.exp(1j * angle) * h[j] / degree[j].sqrt()).norm() ** 2
        for angle, (j, i) in zip(angles, COLUMNS, strict=True)
    )
    assert dirichlet_energy(h, EDGE_INDEX, phase).item() == pytest.approx((total / h.norm() ** 2).item())


def test_dirichlet_energy_does_not_depend_on_the_gauge_and_vanishes_on_parallel_states():
    h, phi = random_states(12, 4), random_angles(12)
    turned, theta = gauge_transform(h, THETA, EDGE_INDEX, phi)
    assert dirichlet_energy(turned, EDGE_INDEX, theta).item() == pytest.approx(dirichlet_energy(h, EDGE_INDEX, THETA).item())
    degree = torch.bincount(EDGE_INDEX[1], minlength=12)
    parallel, pure = gauge_transform(degree.double().sqrt()[:, None] * h[:1], torch.zeros_like(THETA), EDGE_INDEX, phi)
    assert dirichlet_energy(parallel, EDGE_INDEX, pure) < 1e-24
    assert dirichlet_energy(parallel, EDGE_INDEX, THETA) > 0.1
    assert dirichlet_energy(torch.zeros_like(h), EDGE_INDEX) == 0
