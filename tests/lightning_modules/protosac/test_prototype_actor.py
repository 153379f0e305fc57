import math

import pytest
import torch
from prototype_actors import ACT, MIXINGS, OBS, K, actor_loss, build, generator, grounded, randn, train_a_little
from torch import nn

from lightning_modules.protosac.policies import TanhGaussian, TanhMixture
from lightning_modules.protosac.prototype_actor import PrototypeActor
from lightning_modules.protosac.similarity import squared_distances

SIMILARITIES = ["log", "linear", "cosine"]


# the policy


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_output_follows_the_formulas(similarity):
    actor, obs = build(similarity=similarity), randn(7, OBS)
    output = actor(obs)
    z = actor.encoder(obs)
    if similarity == "cosine":
        w = (nn.functional.cosine_similarity(z[:, None], actor.embeddings[None], dim=-1) / 0.2).softmax(1)
    else:
        D = squared_distances(z, actor.embeddings)
        scores = ((D + 1) / (D + 1e-4)) ** 5 if similarity == "log" else ((D + 1) / (D + 1e-4)).log()
        w = scores / scores.sum(1, keepdim=True)
    torch.testing.assert_close(output.weights, w, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(output.mean, sum(w[:, k, None] * actor.means[k] for k in range(K)), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(output.std, sum(w[:, k, None] * actor.log_stds[k].exp() for k in range(K)), atol=1e-5, rtol=1e-4)
    assert isinstance(output.distribution, TanhGaussian)
    assert output.distribution.mean is output.mean
    assert output.distribution.std is output.std


def test_encoder_is_a_relu_perceptron_with_linear_output():
    encoder = PrototypeActor(5, 1).encoder
    assert [(m.in_features, m.out_features) for m in encoder if isinstance(m, nn.Linear)] == [(5, 256), (256, 256), (256, 32)]
    assert [type(m).__name__ for m in encoder] == ["Linear", "ReLU", "Linear", "ReLU", "Linear"]


def test_deviations_are_clamped():
    actor = build()
    with torch.no_grad():
        actor.log_stds[0], actor.log_stds[1] = -9.0, 5.0
    assert actor.stds[0, 0].item() == pytest.approx(math.exp(-5))
    assert actor.stds[1, 0].item() == pytest.approx(math.exp(2))


def test_one_prototype_is_a_gaussian_that_sees_no_state():
    u = 2 * randn(9, ACT)
    log_probs = []
    for mixing in MIXINGS:
        actor = build(num_prototypes=1, mixing=mixing)
        policy = TanhGaussian(actor.means, actor.stds)
        log_probs.append(actor(randn(9, OBS, seed=5)).distribution.log_prob(u))
        torch.testing.assert_close(log_probs[-1], policy.log_prob(u), atol=1e-6, rtol=1e-6)
        assert torch.equal(actor.mode(randn(1, OBS)), actor.mode(100 * randn(1, OBS, seed=1)))
    torch.testing.assert_close(*log_probs, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("mixing", MIXINGS)
@pytest.mark.parametrize("top_m", [None, 2])
def test_equal_gaussians_make_one_gaussian_whatever_the_weights(mixing, top_m):
    actor = build(mixing=mixing, top_m=top_m)
    with torch.no_grad():
        actor.means.copy_(torch.tensor([0.3, -0.6]).expand(K, ACT))
        actor.log_stds.fill_(-0.7)
    u = 2 * randn(9, ACT)
    policy = TanhGaussian(torch.tensor([[0.3, -0.6]]), torch.full((1, ACT), math.exp(-0.7)))
    torch.testing.assert_close(actor(randn(9, OBS)).distribution.log_prob(u), policy.log_prob(u), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("mixing", MIXINGS)
def test_top_m_lets_the_heaviest_act_alone(mixing):
    actor, obs = build(mixing=mixing), randn(8, OBS)
    full, top = actor(obs).weights, actor(obs, top_m=2)
    kept = torch.where(full >= full.sort(dim=1, descending=True).values[:, 1:2], full, 0.0)
    torch.testing.assert_close(top.weights, kept / kept.sum(1, keepdim=True))
    assert ((top.weights == 0).sum(dim=1) == K - 2).all()
    u = randn(8, ACT, seed=3)
    if mixing == "mixture":
        assert top.distribution.log_weights.shape == (8, 2)
        dense = TanhMixture(top.weights.log(), actor.means[None], actor.stds[None])
        torch.testing.assert_close(top.distribution.log_prob(u), dense.log_prob(u))
        assert top.weighted_samples(generator()).actions.shape == (8, 2, ACT)
    else:
        torch.testing.assert_close(top.mean, top.weights @ actor.means)
    torch.testing.assert_close(actor(obs, top_m=K).distribution.log_prob(u), actor(obs).distribution.log_prob(u))
    fixed = build(mixing=mixing, top_m=2)
    torch.testing.assert_close(fixed(obs).weights, top.weights)


def test_deterministic_actions():
    obs = randn(8, OBS)
    blend, heaviest, mean = build(), build(mixing="mixture"), build(mixing="mixture", deterministic="mean")
    w = blend(obs).weights
    torch.testing.assert_close(blend.mode(obs), (w @ blend.means).tanh())
    torch.testing.assert_close(mean.mode(obs), blend.mode(obs))
    torch.testing.assert_close(heaviest.mode(obs), blend.means[w.argmax(1)].tanh())
    torch.testing.assert_close(blend.mode(obs, top_m=1), heaviest.mode(obs))
    state = torch.get_rng_state()
    heaviest.mode(obs)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("mixing", MIXINGS)
@pytest.mark.parametrize("top_m", [None, 3])
def test_samples_have_the_density_that_is_reported(mixing, top_m):
    actor, obs = build(mixing=mixing, top_m=top_m).double(), randn(40, OBS).double()
    actions, log_prob = actor.sample(obs, generator())
    assert actions.shape == (40, ACT)
    torch.testing.assert_close(log_prob, actor(obs).distribution.log_prob(actions.atanh()))
    assert torch.equal(actions, actor.sample(obs, generator())[0])


@pytest.mark.parametrize("mixing", MIXINGS)
def test_autocast_leaves_the_similarity_in_single_precision(mixing):
    actor, obs = grounded(mixing=mixing), randn(8, OBS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = actor(obs)
        assert output.weights.dtype == torch.float32
        assert output.mean.dtype == torch.float32
    torch.testing.assert_close(output.weights, actor(obs).weights, atol=0.1, rtol=0)


# gradients


@pytest.mark.parametrize("mixing", MIXINGS)
@pytest.mark.parametrize("top_m", [None, 3])
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_every_parameter_learns(mixing, top_m, similarity):
    actor = grounded(mixing=mixing, top_m=top_m, similarity=similarity)
    actor_loss(actor, randn(64, OBS, seed=9)).backward()
    for name, parameter in actor.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("mixing", MIXINGS)
@pytest.mark.parametrize("top_m", [None, 1])
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_gradients_are_finite_on_the_prototypes_themselves(mixing, top_m, similarity):
    actor = grounded(mixing=mixing, top_m=top_m, similarity=similarity)
    actor.sync()
    with torch.no_grad():
        actor.means[0] = 10.0
        actor.means[1] = -10.0
    actor_loss(actor, actor.prototype_states).backward()
    assert all(parameter.grad.isfinite().all() for parameter in actor.parameters())


@pytest.mark.parametrize("mixing", MIXINGS)
def test_the_loss_falls(mixing):
    actor = grounded(mixing=mixing)
    obs = randn(256, OBS, seed=8)
    before = actor_loss(actor, obs).item()
    train_a_little(actor, 60)
    assert actor_loss(actor, obs).item() < before - 0.1


# explanations


@pytest.mark.parametrize("mixing", MIXINGS)
@pytest.mark.parametrize("top_m", [None, 3])
def test_explanation_is_a_whole_decomposition(mixing, top_m):
    actor, obs = grounded(mixing=mixing, top_m=top_m), randn(1, OBS)
    parts = actor.explain(obs[0], top=None)
    assert sorted(part.index for part in parts) == list(range(K))
    assert sum(part.weight for part in parts) == pytest.approx(1, abs=1e-6)
    assert [part.weight for part in parts] == sorted((part.weight for part in parts), reverse=True)
    output = actor(obs)
    torch.testing.assert_close(sum(part.contribution for part in parts), output.mean[0], atol=1e-6, rtol=0)
    for part in parts:
        assert part.weight == output.weights[0, part.index].item()
        assert torch.equal(part.prototype_state, actor.prototype_states[part.index])
        assert torch.equal(part.mean_action, actor.means[part.index].tanh())
        assert torch.equal(part.std, actor.stds[part.index])
        assert not part.contribution.requires_grad
    best = actor.explain(obs)
    assert [part.index for part in best] == [part.index for part in parts[:3]]


def test_explanation_changes_nothing():
    encoder = nn.Sequential(nn.Linear(OBS, 4), nn.Dropout(0.5), nn.BatchNorm1d(4))
    actor = grounded(encoder=encoder)
    encoder[2].eval()
    before = {name: value.clone() for name, value in actor.state_dict().items()}
    state = torch.get_rng_state()
    first, again = (actor.explain(randn(OBS))[0] for _ in range(2))
    assert first.weight == again.weight
    assert torch.equal(torch.get_rng_state(), state)
    assert [part.training for part in actor.modules()] == [True, True, True, True, False]
    assert all(torch.equal(value, before[name]) for name, value in actor.state_dict().items())


# images


def test_images_go_through_their_own_encoder():
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(32, 4))
    actor = build(obs_dim=(2, 4, 4), encoder=encoder)
    states = randn(30, 2, 4, 4)
    actor.initialize(states, generator())
    assert actor.ground(states).drift < 1e-5
    assert actor.explain(states[0])[0].prototype_state.shape == (2, 4, 4)
    assert actor.mode(states).shape == (30, ACT)


# refusals


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"num_prototypes": 0}, "num_prototypes must be at least 1"),
        ({"obs_dim": 0}, "obs_dim must be at least 1"),
        ({"action_dim": 0}, "action_dim must be at least 1"),
        ({"hidden": (16, 0)}, "hidden must be at least 1"),
        ({"latent_dim": 1}, "latent_dim must be at least 2"),
        ({"temperature": 0.0}, "temperature must be positive"),
        ({"temperature": math.nan}, "temperature must be positive"),
        ({"similarity": "l2"}, "similarity must be"),
        ({"mixing": "sum"}, "mixing must be"),
        ({"top_m": 0}, "top_m must lie between 1 and num_prototypes=6"),
        ({"top_m": 7}, "top_m must lie between 1 and num_prototypes=6"),
        ({"eps": 0.0}, "eps must lie"),
        ({"deterministic": "mode"}, "deterministic must be"),
        ({"grounding": "soft"}, "grounding must be"),
        ({"ema_rate": 0.0}, "ema_rate must lie"),
        ({"obs_dim": (3, 84, 84)}, "pass an encoder"),
    ],
)
def test_bad_arguments(options, match):
    with pytest.raises(ValueError, match=match):
        build(**options)


def test_observations_that_do_not_fit():
    actor, obs = grounded(), randn(4, OBS)
    with pytest.raises(ValueError, match=r"\[B, 3\], got \[4, 5\]"):
        actor(randn(4, 5))
    with pytest.raises(ValueError, match="images need an encoder"):
        actor.sample(randn(4, 3, 8, 8))
    with pytest.raises(ValueError, match="latent_dim=4"):
        build(encoder=nn.Linear(OBS, 7))(obs)
    obs[2, 1] = torch.nan
    for call in (actor.sample, actor.mode):
        with pytest.raises(ValueError, match="environment 2 is not finite"):
            call(obs)
    with pytest.raises(ValueError, match="state 2 is not finite"):
        actor.ground(obs)


def test_explain_refuses_what_it_cannot_explain():
    with pytest.raises(RuntimeError, match=r"explain: .*initialize\(states\) or ground\(states\)"):
        build().explain(randn(OBS))
    actor = grounded()
    with pytest.raises(ValueError, match="one observation, got 2"):
        actor.explain(randn(2, OBS))
    with pytest.raises(ValueError, match="top must be"):
        actor.explain(randn(OBS), top=0)
