"""The k-means policy by hand."""

import pytest
import torch

from lightning_modules.protosac.cluster_policy import ClusterPolicy


def states(x: list[float], y: list[float]) -> torch.Tensor:
    """Five coordinates that agree, one on a larger scale and one that never changes."""
    return torch.cat([torch.tensor([x]).T.expand(-1, 5), torch.tensor([y]).T, torch.full((len(x), 1), 7.0)], dim=1)


STATES = states([0.0, 0.1, 1.0, 1.1], [0.0, 1_000.0, 400.0, 400.0])
"""Unscaled, the second state would have a cluster of its own."""
ACTIONS = torch.tensor([[0.2], [0.4], [-0.6], [-0.8]])


def test_four_states_in_two_clusters():
    policy = ClusterPolicy(7, 1, 2)
    policy.fit(STATES, ACTIONS)
    assert torch.allclose(policy.actions.sort(dim=0).values, torch.tensor([[-0.7], [0.3]]))
    assert torch.allclose(policy(STATES), torch.tensor([[0.3], [0.3], [-0.7], [-0.7]]))
    # the border runs through the middle of the centres (0.05, 500) and (1.05, 400)
    assert torch.allclose(policy(states([0.5, 0.6], [450.0, 450.0])), torch.tensor([[0.3], [-0.7]]))


def test_as_many_clusters_as_states_repeat_the_teacher():
    policy = ClusterPolicy(7, 1, 4)
    policy.fit(STATES, ACTIONS)
    assert torch.allclose(policy(STATES), ACTIONS)


def test_the_seed_decides():
    obs, action = torch.randn(200, 3, generator=torch.Generator().manual_seed(0)), torch.zeros(200, 1)
    first, again, other = (ClusterPolicy(3, 1, 8) for _ in range(3))
    for policy, seed in ((first, 0), (again, 0), (other, 1)):
        policy.fit(obs, action, seed)
    assert torch.equal(first.centroids, again.centroids)
    assert not torch.equal(first.centroids, other.centroids)


def test_a_cluster_without_states_is_never_the_nearest():
    policy = ClusterPolicy(7, 1, 2)
    policy.fit(STATES, ACTIONS)
    policy.centroids[0], policy.actions[1] = torch.inf, 0.5
    assert torch.equal(policy(STATES), torch.full((4, 1), 0.5))


def test_fewer_distinct_states_than_clusters_are_refused():
    with pytest.raises(ValueError, match="num_clusters=3 needs as many distinct states, there are 2"):
        ClusterPolicy(7, 1, 3).fit(STATES[[0, 1, 0, 1]], ACTIONS)
