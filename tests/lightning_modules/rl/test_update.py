"""One whole update of soft actor-critic, written out on one page, against the module."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from lightning_modules.rl.sac_module import SACModule

OBS, ACTION, BATCH, HIDDEN, LR, GAMMA, TAU = 3, 2, 32, 16, 1e-2, 0.9, 0.05


class Optimizers:
    """The module's own optimisers without a trainer around them."""

    def __init__(self, module: SACModule):
        self.all = module.configure_optimizers()

    def __call__(self) -> list[torch.optim.Optimizer]:
        return self.all


def transitions(seed: int) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return {
        "obs": torch.randn(BATCH, OBS, generator=g),
        "action": torch.rand(BATCH, ACTION, generator=g) * 2 - 1,
        "reward": torch.randn(BATCH, generator=g),
        "next_obs": torch.randn(BATCH, OBS, generator=g),
        "terminated": torch.rand(BATCH, generator=g) < 0.3,
    }


def perceptron(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, outputs))


class Transcription:
    """The algorithm as in Haarnoja et al. 2018, with one network object each and torch.distributions for the policy."""

    def __init__(self, module: SACModule):
        self.actor = perceptron(OBS, 2 * ACTION)
        self.actor.load_state_dict(module.actor.network.state_dict())
        self.critics = []
        for member in range(2):
            critic = perceptron(OBS + ACTION, 1)
            for ours, theirs in zip((critic[0], critic[2]), (module.critics.layers[0], module.critics.layers[2]), strict=True):
                ours.weight.data.copy_(theirs.weight[member].T)
                ours.bias.data.copy_(theirs.bias[member, 0])
            self.critics.append(critic)
        self.targets = copy.deepcopy(self.critics)
        self.log_alpha = nn.Parameter(module.log_alpha.detach().clone())
        critic_parameters = [p for critic in self.critics for p in critic.parameters()]
        groups = (critic_parameters, self.actor.parameters(), [self.log_alpha])
        self.critic_opt, self.actor_opt, self.alpha_opt = (torch.optim.Adam(group, lr=LR) for group in groups)

    def policy(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.actor(obs).chunk(2, -1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
        squashed = torch.distributions.TransformedDistribution(normal, torch.distributions.TanhTransform(cache_size=1))
        action = squashed.rsample()
        return action, squashed.log_prob(action).sum(-1)

    def update(self, batch: dict[str, Tensor]) -> None:
        obs, alpha = batch["obs"], self.log_alpha.exp().item()
        with torch.no_grad():
            next_action, next_log_prob = self.policy(batch["next_obs"])
            both = torch.cat([batch["next_obs"], next_action], -1)
            value = torch.min(*(target(both).squeeze(-1) for target in self.targets)) - alpha * next_log_prob
            y = batch["reward"] + GAMMA * (1 - batch["terminated"].float()) * value
        both = torch.cat([obs, batch["action"]], -1)
        self.descend(self.critic_opt, sum(nn.functional.mse_loss(critic(both).squeeze(-1), y) for critic in self.critics))
        action, log_prob = self.policy(obs)
        value = torch.min(*(critic(torch.cat([obs, action], -1)).squeeze(-1) for critic in self.critics))
        self.descend(self.actor_opt, (alpha * log_prob - value).mean())
        self.descend(self.alpha_opt, (-self.log_alpha * (log_prob.detach() - ACTION)).mean())
        for target, critic in zip(self.targets, self.critics, strict=True):
            for old, new in zip(target.parameters(), critic.parameters(), strict=True):
                old.data.mul_(1 - TAU).add_(new.data, alpha=TAU)

    @staticmethod
    def descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def without_trainer(**options: object) -> SACModule:
    torch.manual_seed(0)
    sizes = {"obs_dim": OBS, "action_dim": ACTION, "hidden": [HIDDEN], "batch_size": BATCH}
    module = SACModule(**sizes, lr=LR, discount=GAMMA, target_rate=TAU, **options)
    module.optimizers = Optimizers(module)
    module.manual_backward = lambda loss: loss.backward()
    return module


def test_updates_are_those_of_the_algorithm_written_out():
    module = without_trainer()
    expected = Transcription(module)
    for number in range(5):
        torch.manual_seed(number)
        module.update(transitions(number))
        torch.manual_seed(number)
        expected.update(transitions(number))
    assert module.log_alpha.item() == pytest.approx(expected.log_alpha.item(), abs=1e-6)
    for name, value in expected.actor.named_parameters():
        torch.testing.assert_close(module.actor.network.get_parameter(name), value, rtol=1e-5, atol=1e-6)
    for ensemble, members in ((module.critics, expected.critics), (module.target_critics, expected.targets)):
        for member, critic in enumerate(members):
            for theirs, ours in zip((critic[0], critic[2]), (ensemble.layers[0], ensemble.layers[2]), strict=True):
                torch.testing.assert_close(ours.weight[member].T, theirs.weight, rtol=1e-5, atol=1e-6)
                torch.testing.assert_close(ours.bias[member, 0], theirs.bias, rtol=1e-5, atol=1e-6)


def test_only_the_actor_learns_from_its_own_loss():
    module = without_trainer()
    module.critics.requires_grad_(False)
    loss, _, _ = module.policy_objective(transitions(0)["obs"], module.alpha)
    loss.backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in module.actor.parameters())
    assert all(p.grad is None for p in (*module.critics.parameters(), *module.target_critics.parameters(), module.log_alpha))


def test_gradients_of_the_actor_are_shortened_if_wanted():
    batch = transitions(0)
    lengths = []
    for limit in (None, 1e-3):
        module = without_trainer(max_actor_grad_norm=limit)
        module.update(batch)
        lengths.append(float(torch.cat([p.grad.flatten() for p in module.actor.parameters()]).norm()))
    assert lengths[0] > 0.01
    assert lengths[1] == pytest.approx(1e-3, rel=1e-4)


def test_rewards_are_scaled_in_the_target_only():
    scaled, plain = without_trainer(reward_scale=0.1), without_trainer()
    batch = transitions(0)
    for module, seen in ((scaled, batch), (plain, {**batch, "reward": 0.1 * batch["reward"]})):
        torch.manual_seed(7)
        module.update(seen)
    for one, other in zip(scaled.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_a_compiled_update_is_the_same():
    plain, compiled = without_trainer(), without_trainer()
    compiled.compile(backend="aot_eager")
    for module in (plain, compiled):
        for number in range(2):
            torch.manual_seed(number)
            module.update(transitions(number))
    for one, other in zip(plain.parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_the_temperature_starts_where_it_is_told():
    assert without_trainer(initial_alpha=0.3).alpha.item() == pytest.approx(0.3)
    assert without_trainer().target_entropy == -ACTION
    assert math.isclose(without_trainer(target_entropy=-0.5).target_entropy, -0.5)
