import math

import pytest
import torch

from lightning_modules.protosac.interpretability import interpretability, nearest_states, perturbed, top_set_overlap
from lightning_modules.protosac.prototype_actor import PrototypeActor


def actor_on(points, **options):
    """An actor that compares the states themselves with these points."""
    points = torch.tensor(points)
    actor = PrototypeActor(points.shape[1], 1, len(points), latent_dim=points.shape[1], encoder=torch.nn.Identity(), **options)
    actor.embeddings.data.copy_(points)
    return actor.eval()


def test_overlap_by_hand():
    first = torch.tensor([[4.0, 3.0, 2.0, 1.0, 0.0]]).repeat(4, 1)
    second = torch.tensor(
        [[2.0, 4.0, 3.0, 1.0, 0.0], [4.0, 3.0, 0.0, 2.0, 1.0], [4.0, 0.0, 1.0, 3.0, 2.0], [0.0, 0.1, 0.2, 1.0, 2.0]]
    )
    # sets {0, 1, 2} and {0, 1, 2}; {0, 1, 3}; {0, 3, 4}; {2, 3, 4}
    assert top_set_overlap(first, second, 3).tolist() == pytest.approx([1.0, 2 / 4, 1 / 5, 1 / 5])
    assert top_set_overlap(first, second, 5).tolist() == [1.0] * 4


def test_overlap_equals_that_of_sets():
    g = torch.Generator().manual_seed(0)
    first, second = torch.rand(50, 8, generator=g), torch.rand(50, 8, generator=g)
    expected = []
    for a, b in zip(first.tolist(), second.tolist(), strict=True):
        A, B = (set(sorted(range(8), key=lambda k: -row[k])[:3]) for row in (a, b))
        expected.append(len(A & B) / len(A | B))
    assert top_set_overlap(first, second, 3).tolist() == pytest.approx(expected)
    assert len(set(expected)) > 2


def test_nearest_states_equal_brute_force():
    g = torch.Generator().manual_seed(0)
    P, Z = torch.randn(4, 3, generator=g), torch.randn(20, 3, generator=g)
    places, distances = nearest_states(P, Z, 5)
    for k in range(4):
        every = [math.dist(P[k].tolist(), z) for z in Z.tolist()]
        expected = sorted(range(20), key=every.__getitem__)[:5]
        assert places[k].tolist() == expected
        assert distances[k].tolist() == pytest.approx([every[n] for n in expected], rel=1e-5)
    assert nearest_states(P, Z[:2], 5)[0].shape == (4, 2)


def test_noise_is_a_share_of_each_dimensions_deviation():
    states = torch.randn(20_000, 2, generator=torch.Generator().manual_seed(0)) * torch.tensor([3.0, 0.0]) + 5
    added = perturbed(states, 0.1, torch.Generator().manual_seed(1)) - states
    assert added[:, 0].std().item() == pytest.approx(0.3, rel=0.03)
    assert added[:, 0].mean().item() == pytest.approx(0.0, abs=0.01)
    assert (added[:, 1] == 0).all()


def test_measures_where_they_are_known():
    # three prototypes that almost always act alone, and one that never acts
    actor = actor_on([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0], [99.0, 99.0]], temperature=0.05)
    states = torch.tensor([[0.0, 0.0], [0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    found = interpretability(actor, states, nearest=2)
    assert found.usage.tolist() == pytest.approx([0.5, 0.25, 0.25, 0.0], abs=1e-4)
    assert found.effective_prototypes.item() == pytest.approx(1.0, abs=1e-3)
    assert found.prototypes_used.item() == pytest.approx(0.75)
    assert found.nearest[:3, 0].tolist() in ([0, 2, 3], [1, 2, 3])
    assert found.distances[:3].tolist() == [[0.0, 0.0], [0.0, 10.0], [0.0, 10.0]]


def test_a_prototype_is_used_from_one_percent_on():
    # D = 0 and D = r^2: weights from the closed form ((D + 1) / (D + eps))^(1 / tau)
    def usage(r: float):
        found = interpretability(actor_on([[0.0, 0.0], [r, 0.0]], temperature=1.0), torch.zeros(2, 2))
        ratio = ((r * r + 1) / (r * r + 1e-4)) / 1e4
        expected = ratio / (1 + ratio)
        assert found.usage[1].item() == pytest.approx(expected, rel=1e-4)
        entropy = -(expected * math.log(expected) + (1 - expected) * math.log(1 - expected))
        assert found.effective_prototypes.item() == pytest.approx(math.exp(entropy), rel=1e-4)
        return expected, found.prototypes_used.item()

    assert usage(0.11) == (pytest.approx(0.0083, abs=1e-3), 0.5)
    assert usage(0.09) == (pytest.approx(0.0123, abs=1e-3), 1.0)


def test_stability_sees_noise_that_reorders_prototypes():
    g = torch.Generator().manual_seed(0)
    actor, states = actor_on(torch.randn(12, 2, generator=g).tolist()), torch.randn(200, 2, generator=g)

    def stability(noise: float):
        return interpretability(actor, states, noise, generator=torch.Generator().manual_seed(1)).explanation_stability.item()

    levels = [stability(noise) for noise in (0.0, 0.01, 0.1, 1.0)]
    assert levels[0] == 1.0
    assert levels == sorted(levels, reverse=True)
    assert len(set(levels)) == 4
    assert levels[3] > 3 / 21  # even random sets share something: below, the sets were not those of the same state


def test_stability_compares_only_prototypes_that_act():
    g = torch.Generator().manual_seed(0)
    actor, states = actor_on(torch.randn(12, 2, generator=g).tolist(), top_m=1), torch.randn(200, 2, generator=g)
    found = interpretability(actor, states, 0.3, generator=torch.Generator().manual_seed(1)).explanation_stability
    noisy = perturbed(states, 0.3, torch.Generator().manual_seed(1))
    nearest, nearest_noisy = (torch.cdist(x, actor.embeddings).argmin(dim=1) for x in (states, noisy))
    assert found.item() == pytest.approx((nearest == nearest_noisy).float().mean().item())
    assert 0.1 < found < 0.9
    few = actor_on([[0.0, 0.0], [1.0, 0.0]])  # fewer than three prototypes: all of them, always
    assert interpretability(few, states, 0.3).explanation_stability == 1.0


def test_measuring_changes_nothing():
    actor = actor_on([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
    before, state = {name: value.clone() for name, value in actor.state_dict().items()}, torch.get_rng_state()
    found = interpretability(actor, torch.randn(9, 2, generator=torch.Generator().manual_seed(0)), generator=torch.Generator())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in actor.state_dict().items())
    assert not found.usage.requires_grad
    assert not found.distances.requires_grad
