import copy
import math

import pytest
import torch
from prototype_actors import MIXINGS, OBS, K, build, generator, grounded, randn, train_a_little
from torch import nn

from lightning_modules.protosac.prototype_actor import PrototypeActor
from lightning_modules.protosac.similarity import log_similarity, squared_distances


def test_initialisation_places_prototypes_on_states_and_spreads_the_actions():
    actor, states = build(action_dim=1), randn(50, OBS)
    assert not actor.grounded
    actor.initialize(states, generator())
    rows = (actor.prototype_states[:, None] == states[None]).all(-1)
    assert (rows.sum(dim=1) == 1).all()
    assert actor.prototype_states.unique(dim=0).shape[0] == K
    torch.testing.assert_close(actor.embeddings.detach(), actor.encoder(actor.prototype_states).detach())
    torch.testing.assert_close(actor.means.tanh().squeeze(1).detach(), torch.linspace(-0.8, 0.8, K))
    assert (actor.log_stds == -0.5).all()
    assert actor.grounded
    again = build(action_dim=1)
    again.initialize(states, generator())
    assert torch.equal(again.prototype_states, actor.prototype_states)


@pytest.mark.parametrize("grounding", ["hard", "ema"])
def test_this_looks_like_that(grounding):
    actor = grounded(grounding=grounding)
    train_a_little(actor)
    assert actor.drift() > 1e-3
    replay = randn(100, OBS, seed=7).repeat_interleave(2, dim=0)
    report = actor.ground(replay)
    actor.sync()
    assert torch.equal(actor.prototype_states, replay[report.candidates])
    assert len(set(report.candidates.tolist())) == K
    assert actor.prototype_states.unique(dim=0).shape[0] == K
    z = actor.encoder(actor.prototype_states)
    sim = log_similarity(squared_distances(z, actor.embeddings)).diagonal()
    torch.testing.assert_close(sim, torch.full((K,), math.log(1e4)), atol=1e-6, rtol=0)
    assert actor(actor.prototype_states).weights.argmax(dim=1).tolist() == list(range(K))
    assert actor.drift() < 1e-6


def test_grounding_reports_what_it_did():
    actor = build()
    states = randn(40, OBS, seed=7)
    P, before = actor.embeddings.detach().clone(), actor(states)
    report = actor.ground(states)
    z = actor.encoder(states)
    D = squared_distances(P, z)
    torch.testing.assert_close(report.distances, D.sqrt().gather(1, report.candidates[:, None]).squeeze(1))
    assert math.isnan(report.drift)
    torch.testing.assert_close(actor.embeddings.detach(), z[report.candidates].detach())
    assert report.kl == pytest.approx(before.distribution.kl(actor(states).distribution).mean().item(), rel=1e-4)
    assert report.kl > 0
    with torch.no_grad():
        actor.embeddings[2] += torch.tensor([3.0, 0.0, 4.0, 0.0])
    assert actor.ground(states).drift == pytest.approx(5, rel=1e-5)


@pytest.mark.parametrize("mixing", MIXINGS)
def test_grounding_twice_changes_nothing_the_second_time(mixing):
    actor, states = grounded(mixing=mixing), randn(100, OBS, seed=7)
    train_a_little(actor)
    first = actor.ground(states)
    before = {name: value.clone() for name, value in actor.state_dict().items() if name != "grounding_count"}
    rng = torch.get_rng_state()
    second = actor.ground(states)
    assert first.replaced.any()
    assert torch.equal(second.candidates, first.candidates)
    assert not second.replaced.any()
    assert second.kl == 0
    assert all(torch.equal(actor.state_dict()[name], value) for name, value in before.items())
    assert actor.grounding_count == 3
    assert torch.equal(torch.get_rng_state(), rng)


def test_soft_grounding_moves_part_of_the_way_and_keeps_momentum():
    actor, states = grounded(grounding="ema", ema_rate=0.25), randn(100, OBS, seed=7)
    optimizer = train_a_little(actor)
    P = actor.embeddings.detach().clone()
    momentum = optimizer.state[actor.embeddings]["exp_avg"].clone()
    report = actor.ground(states, optimizer)
    targets = actor.encoder(states[report.candidates]).detach()
    torch.testing.assert_close(actor.embeddings.detach(), 0.75 * P + 0.25 * targets)
    assert report.replaced.any()
    assert not report.reset.any()
    assert torch.equal(optimizer.state[actor.embeddings]["exp_avg"], momentum)


def test_adam_forgets_replaced_prototypes_only():
    actor, states = grounded(), randn(100, OBS, seed=7)
    optimizer = train_a_little(actor)
    actor.ground(states)
    with torch.no_grad():
        actor.embeddings[1] += 0.05
        actor.embeddings[4] -= 0.05
    momentum = optimizer.state[actor.embeddings]["exp_avg"].clone()
    others = [optimizer.state[p]["exp_avg"].clone() for p in (actor.means, actor.log_stds)]
    report = actor.ground(states, optimizer)
    assert report.replaced.nonzero().squeeze(1).tolist() == [1, 4]
    for name in ("exp_avg", "exp_avg_sq"):
        rows = optimizer.state[actor.embeddings][name].abs().sum(dim=1)
        assert (rows == 0).tolist() == report.replaced.tolist()
    kept = ~report.replaced
    assert torch.equal(optimizer.state[actor.embeddings]["exp_avg"][kept], momentum[kept])
    for parameter, value in zip((actor.means, actor.log_stds), others, strict=True):
        assert torch.equal(optimizer.state[parameter]["exp_avg"], value)


def test_sync_follows_the_encoder_and_keeps_the_states():
    actor = grounded()
    train_a_little(actor)
    states, P = actor.prototype_states.clone(), actor.embeddings.detach().clone()
    assert torch.equal(actor.sync(), P)
    torch.testing.assert_close(actor.embeddings.detach(), actor.encoder(states).detach())
    assert torch.equal(actor.prototype_states, states)
    assert not torch.equal(actor.embeddings, P)


def identity_actor(**options) -> PrototypeActor:
    return build(obs_dim=2, latent_dim=2, num_prototypes=4, encoder=nn.Identity(), **options)


@pytest.mark.parametrize("mixing", MIXINGS)
def test_dead_prototypes_move_to_the_farthest_state_with_the_nearest_gaussian(mixing):
    actor = identity_actor(reseed_dead=True, mixing=mixing)
    places = torch.tensor([[4.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    actor.initialize(places, generator())
    optimizer = train_on_squares(actor)
    with torch.no_grad():
        actor.embeddings.copy_(places)
    actor.record_usage(torch.tensor([[0.01, 0.5, 0.3, 0.19], [0.03, 0.4, 0.4, 0.17]]))
    torch.testing.assert_close(actor.mean_weights, torch.tensor([0.02, 0.45, 0.35, 0.18]))
    unchanged = copy.deepcopy(actor)
    # [5, 0] is 4 from the nearest that lives, number 2; [0, 3] would be farther if the dead one counted
    states = torch.cat([places, torch.tensor([[5.0, 0.0], [0.0, 3.0]])])
    report = actor.ground(states, optimizer)
    assert report.reseeded.tolist() == [True, False, False, False]
    assert report.candidates.tolist() == [4, 1, 2, 3]
    assert actor.prototype_states[0].tolist() == [5.0, 0.0]
    assert torch.equal(actor.means[0], unchanged.means[2])
    assert torch.equal(actor.log_stds[0], unchanged.log_stds[2])
    divergence = unchanged(states).distribution.kl(actor(states).distribution, generator())
    assert report.kl == pytest.approx(divergence.mean().item(), rel=1e-5)
    for parameter in (actor.embeddings, actor.means, actor.log_stds):
        assert (optimizer.state[parameter]["exp_avg"].abs().sum(dim=1) == 0).tolist() == [True, False, False, False]
    assert actor.usage_steps == 0
    assert actor.usage_sum.abs().max() == 0


def train_on_squares(actor: PrototypeActor) -> torch.optim.Adam:
    optimizer = torch.optim.Adam(actor.parameters(), lr=1e-3)
    sum((parameter - 3).square().sum() for parameter in actor.parameters()).backward()
    optimizer.step()
    return optimizer


def test_living_or_uncounted_prototypes_stay_and_so_do_all_by_default():
    usage = torch.tensor([[0.5, 0.3, 0.17, 0.03]])  # the limit is 0.1 / 4 = 0.025
    for options, weights in (({"reseed_dead": True}, usage), ({"reseed_dead": True}, None), ({}, torch.eye(4)[:1])):
        actor = identity_actor(**options)
        actor.ground(randn(30, 2))
        if weights is not None:
            actor.record_usage(weights)
        assert not actor.ground(randn(30, 2)).reseeded.any()


def test_state_dict_holds_states_and_counters():
    actor = grounded()
    train_a_little(actor)
    actor.ground(randn(60, OBS, seed=4))
    actor.record_usage(actor(randn(5, OBS)).weights)
    other = build(seed=1)
    other.load_state_dict(actor.state_dict())
    assert other.grounded
    assert other.grounding_count == 2
    assert other.usage_steps == 5
    assert torch.equal(other.usage_sum, actor.usage_sum)
    assert torch.equal(other.prototype_states, actor.prototype_states)
    assert torch.equal(other.mode(randn(4, OBS)), actor.mode(randn(4, OBS)))


@pytest.mark.parametrize(
    ("options", "theirs", "ours"),
    [
        ({"num_prototypes": 9}, "num_prototypes=9", "num_prototypes=6"),
        ({"obs_dim": 5}, "obs_dim=5", "obs_dim=3"),
        ({"action_dim": 1}, "action_dim=1", "action_dim=2"),
        ({"latent_dim": 8}, "latent_dim=8", "latent_dim=4"),
    ],
)
def test_another_actors_checkpoint_is_refused_by_its_sizes(options, theirs, ours):
    holder = nn.ModuleDict({"actor": build()})
    checkpoint = nn.ModuleDict({"actor": build(**options)}).state_dict()
    with pytest.raises(ValueError, match=f"checkpoint's actor has .*{theirs}.*this one has .*{ours}"):
        holder.load_state_dict(checkpoint)


@pytest.mark.parametrize("method", ["sync", "drift"])
def test_ungrounded_prototypes_have_nothing_to_follow(method):
    with pytest.raises(RuntimeError, match=method):
        getattr(build(), method)()


@pytest.mark.parametrize("method", ["initialize", "ground"])
def test_grounding_needs_enough_distinct_states(method):
    call = getattr(build(), method)
    with pytest.raises(ValueError, match="there is none"):
        call(torch.zeros(0, OBS))
    with pytest.raises(ValueError, match="at least 6 distinct states, got 5 among 5; collect more or lower num_prototypes"):
        call(randn(5, OBS))
    with pytest.raises(ValueError, match="at least 6 distinct states, got 2 among 40"):
        call(randn(2, OBS).repeat(20, 1))


def test_diverged_encoders_are_named():
    actor = build()
    with torch.no_grad():
        actor.encoder[0].weight.fill_(torch.nan)
    with pytest.raises(ValueError, match="diverged"):
        actor.ground(randn(20, OBS))
