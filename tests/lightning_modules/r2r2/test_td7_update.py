"""Whole updates of TD7 and TD7+R2R2, written out on one page, against the module."""

from typing import Any

import pytest
import torch
from td7_agents import ACTION, BATCH, HIDDEN, LATENT, OBS, AloneTD7, Experience
from torch import Tensor, nn

from benchmarks.td7_script import TD7Script
from lightning_modules.r2r2.redundancy import RedundancyReduction

LR, UPDATE_RATE = 1e-2, 3


def linears(network: nn.Module) -> list[nn.Linear]:
    return [layer for layer in network.modules() if isinstance(layer, nn.Linear)]


def pairs(module: Any, script: TD7Script) -> dict[str, tuple[Tensor, Tensor]]:
    """Weights of the module and of the script that play the same part."""
    networks = {
        "encoder": (module.encoder, script.encoder),
        "actor": (module.actor, script.actor),
        "fixed_encoder": (module.fixed_encoder, script.fixed_encoder),
        "fixed_target_encoder": (module.fixed_target_encoder, script.fixed_encoder_target),
        "target_actor": (module.target_actor, script.actor_target),
    }
    found = {}
    for name, (ours, theirs) in networks.items():
        for number, (one, other) in enumerate(zip(linears(ours), linears(theirs), strict=True)):
            found[f"{name} {number} weight"] = (one.weight, other.weight)
            found[f"{name} {number} bias"] = (one.bias, other.bias)
    for name, ensemble, pair in (
        ("critics", module.critics, script.critic),
        ("target_critics", module.target_critics, script.critic_target),
    ):
        for member, critic in enumerate(pair.members):
            layers = [ensemble.read, ensemble.first, ensemble.second, ensemble.last]
            for number, (one, other) in enumerate(zip(layers, linears(critic), strict=True)):
                found[f"{name} {member} {number} weight"] = (one.weight[member].T, other.weight)
                found[f"{name} {member} {number} bias"] = (one.bias[member, 0], other.bias)
    return found


def transcription(module: AloneTD7, redundancy: tuple[float, float] | None) -> TD7Script:
    """The script, started with the module's weights."""
    script = TD7Script(OBS, ACTION, LATENT, HIDDEN, LR, target_update_rate=UPDATE_RATE, redundancy=redundancy)
    with torch.no_grad():
        for ours, theirs in pairs(module, script).values():
            theirs.copy_(ours)
    script.start(LR)
    return script


@pytest.mark.parametrize("redundancy", [None, (0.3, 0.2)])
def test_updates_are_those_of_the_algorithm_written_out(redundancy: tuple[float, float] | None):
    regularizer = None if redundancy is None else RedundancyReduction(*redundancy)
    module = AloneTD7(lr=LR, target_update_rate=UPDATE_RATE, regularizer=regularizer)
    script, experience = transcription(module, redundancy), Experience()
    for number in range(8):
        batch = experience.sample(BATCH)
        torch.manual_seed(number)
        script.train(batch, lambda priority, index=batch["index"]: experience.update_priorities(index, priority))
        if script.training_steps % UPDATE_RATE == 0:
            experience.reset_max_priority()
        module.learn(1)
        torch.testing.assert_close(module.experience.priorities[-1], experience.priorities[-1], rtol=1e-5, atol=1e-6)
        for name, (ours, theirs) in pairs(module, script).items():
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6, msg=f"update {number}, {name}")
    assert experience.priorities[-1].max() > 1.1
    assert not torch.equal(experience.priorities[0], experience.priorities[-1])
    assert (float(module.value_low), float(module.value_high)) == pytest.approx((script.min, script.max), abs=1e-5)
    assert (float(module.target_low), float(module.target_high)) == pytest.approx((script.min_target, script.max_target), abs=1e-5)
    assert script.max_target > 1
    assert module.experience.replay.max_priority == pytest.approx(experience.replay.max_priority, abs=1e-5)


def test_layers_are_normalised_if_wanted():
    plain, normalised = AloneTD7(), AloneTD7(layer_norm=True)
    # two hidden layers in each of: encoder (states, pairs), actor, critics; each has two more parameters
    counts = [sum(p.requires_grad for p in module.parameters()) for module in (plain, normalised)]
    assert counts[1] - counts[0] == 4 * 2 * 2
    normalised.learn(2)
    assert all(p.grad is not None for p in normalised.parameters() if p.requires_grad)


def test_normalised_critics_are_those_of_one_network_each():
    critics = AloneTD7(layer_norm=True).critics
    with torch.no_grad():
        for parameter in critics.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    obs, action, zsa, zs = (torch.randn(5, size) for size in (OBS, ACTION, LATENT, LATENT))
    for member in range(2):
        read = torch.cat([obs, action], 1) @ critics.read.weight[member] + critics.read.bias[member]
        x = torch.cat([read / read.abs().mean(1, keepdim=True), zsa, zs], 1)
        for linear, norm in zip((critics.first, critics.second), critics.norms, strict=True):
            x = x @ linear.weight[member] + linear.bias[member]
            x = nn.functional.elu(nn.functional.layer_norm(x, [HIDDEN], norm.weight[member, 0], norm.bias[member, 0]))
        value = (x @ critics.last.weight[member] + critics.last.bias[member]).squeeze(-1)
        torch.testing.assert_close(critics(obs, action, zsa, zs)[member], value)


def test_coefficients_of_zero_are_plain_self_prediction():
    plain, regularized = AloneTD7(), AloneTD7(regularizer=RedundancyReduction(0.0, 0.0))
    active = AloneTD7(regularizer=RedundancyReduction())
    for module in (plain, regularized, active):
        module.learn(6)
    for (name, one), other in zip(plain.named_parameters(), regularized.parameters(), strict=True):
        assert torch.equal(one, other), name
    assert not torch.equal(next(plain.encoder.parameters()), next(active.encoder.parameters()))


def test_a_compiled_update_is_the_same():
    plain, compiled = (AloneTD7(regularizer=RedundancyReduction()) for _ in range(2))
    compiled.compile(backend="aot_eager")
    for module in (plain, compiled):
        module.learn(2)
    for one, other in zip(plain.parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_an_update_never_waits_for_a_number(monkeypatch: pytest.MonkeyPatch):
    module = AloneTD7()
    batch = module.experience.sample()
    for name in ("update_priorities", "reset_max_priority"):  # the replay is on the CPU and has to wait
        monkeypatch.setattr(module.experience, name, lambda *_: None)
    waits: list[str] = []
    for name in ("item", "__bool__", "__float__", "cpu", "tolist"):
        inner = getattr(Tensor, name)
        monkeypatch.setattr(Tensor, name, lambda self, *a, n=name, f=inner: (waits.append(n), f(self, *a))[1])
    module.update(batch)
    module.updates = 249
    module.update(batch)
    assert waits == []
