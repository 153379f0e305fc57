"""When the networks of TD7 are copied, and from where gradients come."""

import torch
from td7_agents import AloneTD7
from torch import nn

Weights = list[torch.Tensor]


def weights(network: nn.Module) -> Weights:
    return [p.detach().clone() for p in network.parameters()]


def same(one: Weights, other: Weights) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_networks_are_copied_after_every_250th_update_and_at_no_other():
    module = AloneTD7()
    first = {name: weights(getattr(module, name)) for name in ("encoder", "actor", "critics")}
    module.learn(249)
    for name in ("fixed_encoder", "fixed_target_encoder"):
        assert same(weights(getattr(module, name)), first["encoder"])
    assert same(weights(module.target_actor), first["actor"])
    assert same(weights(module.target_critics), first["critics"])
    assert (module.target_low, module.target_high) == (0, 0)
    module.learn(1)
    encoder_at_first_copy = weights(module.encoder)
    assert same(weights(module.target_actor), weights(module.actor))
    assert same(weights(module.target_critics), weights(module.critics))
    assert same(weights(module.fixed_encoder), encoder_at_first_copy)
    assert same(weights(module.fixed_target_encoder), first["encoder"])
    assert module.target_low == module.value_low < 0 < module.value_high == module.target_high
    module.learn(250)
    assert same(weights(module.fixed_target_encoder), encoder_at_first_copy)
    assert same(weights(module.fixed_encoder), weights(module.encoder))
    assert not same(weights(module.encoder), encoder_at_first_copy)


def test_targets_are_the_rewards_until_a_range_of_values_is_known():
    module = AloneTD7(target_update_rate=4)
    for number in range(6):
        batch = module.experience.sample()
        known = torch.equal(module._target(batch), batch["reward"])
        assert known == (number < 4)
        module.learn(1)


def test_an_episode_that_is_cut_by_the_clock_bootstraps_and_one_that_ends_does_not():
    module = AloneTD7(target_update_rate=1)
    module.learn(2)
    batch = module.experience.sample()
    batch["terminated"] = torch.arange(len(batch["reward"])) % 2 == 0
    batch["truncated"] = ~batch["terminated"]
    plain = module._target(batch) == batch["reward"]
    assert torch.equal(plain, batch["terminated"])


def test_the_range_of_values_is_that_of_all_targets():
    module = AloneTD7(target_update_rate=2)
    seen = []
    inner = module._target
    module._target = lambda batch: seen.append(inner(batch)) or seen[-1]
    module.learn(5)
    targets = torch.cat(seen)
    assert (module.value_low, module.value_high) == (targets.min(), targets.max())
    known = torch.cat(seen[:4])
    assert (module.target_low, module.target_high) == (known.min(), known.max())


def test_the_actor_moves_at_every_second_update():
    module = AloneTD7()
    for number in range(1, 7):
        before, critics = weights(module.actor), weights(module.critics)
        module.learn(1)
        assert same(before, weights(module.actor)) == (number % 2 == 1)
        assert ("actor_loss" in module.logs) == (number % 2 == 0)
        assert not same(critics, weights(module.critics))


def test_fixed_networks_never_get_gradients_and_others_always_do():
    module = AloneTD7(use_checkpoints=True)
    module.learn(2)
    trained = {"encoder", "actor", "critics"}
    for name, parameter in module.named_parameters():
        if name.split(".")[0] in trained:
            assert parameter.requires_grad, name
            assert parameter.grad.abs().sum() > 0, name
        else:
            assert not parameter.requires_grad, name
            assert parameter.grad is None, name


def test_the_encoder_learns_from_self_prediction_alone():
    module = AloneTD7()
    batch = module.experience.sample()
    zs, zsa = module._embed(batch)
    loss, error_JB, logs = module.objective(batch, module._target(batch), zs, zsa)
    critics_by_errors = torch.autograd.grad(error_JB.sum(), list(module.critics.parameters()), retain_graph=True)
    assert all(g.abs().sum() > 0 for g in critics_by_errors)
    others = [*module.encoder.parameters(), *module.actor.parameters()]
    assert set(torch.autograd.grad(logs["critic_loss"], others, retain_graph=True, allow_unused=True)) == {None}
    both = [*module.critics.parameters(), *module.actor.parameters()]
    assert set(torch.autograd.grad(logs["prediction_loss"], both, retain_graph=True, allow_unused=True)) == {None}
    actor_loss = module.policy_objective(batch["obs"], zs)
    assert set(torch.autograd.grad(actor_loss, list(module.encoder.parameters()), allow_unused=True)) == {None}
    assert loss.item() == (logs["prediction_loss"] + logs["critic_loss"]).item()


def test_policies_act_on_fixed_embeddings_and_kept_ones_on_their_own():
    module = AloneTD7(use_checkpoints=True, target_update_rate=2)
    obs = torch.randn(4, 3)
    first = module.exploit(obs)
    module.learn(5)
    assert torch.equal(module.exploit(obs), first)
    module.experience.ended = [(1.0, 5)]
    module.updates_due(5)
    assert torch.equal(module.exploit(obs), module.actor(obs, module.fixed_encoder.zs(obs)))
    assert not torch.equal(module.exploit(obs), first)
    explored = torch.stack([module.explore(obs) for _ in range(300)])
    torch.testing.assert_close(explored.mean(0), module.exploit(obs), atol=0.03, rtol=0)
    assert explored.abs().max() <= 1
    assert torch.equal(module.representation(obs), module.encoder.zs(obs))
