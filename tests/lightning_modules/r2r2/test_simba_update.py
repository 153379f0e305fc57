"""Whole updates of SimbaV2 and SimbaV2-SPL, written out on one page in the authors' order, against the module."""

import math
from collections.abc import Iterable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from lightning_modules.r2r2.hypersphere import hyper_weights
from lightning_modules.r2r2.redundancy import RedundancyReduction
from lightning_modules.r2r2.simba_module import SimbaV2Module

OBS, ACTION, BATCH, K = 3, 2, 16, 11
GAMMA, TAU, LR, ENCODER_LR, FINAL_LR, TOTAL = 0.9, 0.05, 1e-2, 2e-2, 1e-3, 10
SIZES = {"actor_width": 8, "critic_width": 12, "latent_dim": 6, "model_width": 10, "num_bins": K}


class Optimizers:
    """The module's own optimisers without a trainer around them."""

    def __init__(self, module: SimbaV2Module):
        self.all = module.configure_optimizers()

    def __call__(self) -> list[torch.optim.Optimizer]:
        return self.all


def without_trainer(**options: object) -> SimbaV2Module:
    torch.manual_seed(0)
    rates = {"lr": LR, "encoder_lr": ENCODER_LR, "final_lr": FINAL_LR, "discount": GAMMA, "target_rate": TAU}
    module = SimbaV2Module(obs_dim=OBS, action_dim=ACTION, batch_size=BATCH, initial_alpha=0.1, **SIZES, **rates, **options)
    module.double()
    module.optimizers = Optimizers(module)
    module.manual_backward = lambda loss: loss.backward()
    module.total_updates = TOTAL
    return module


def transitions(seed: int) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(seed)
    obs, next_obs = torch.randn(2, BATCH, OBS, generator=g, dtype=torch.float64)
    return {
        "obs": obs,
        "action": torch.rand(BATCH, ACTION, generator=g, dtype=torch.float64) * 2 - 1,
        "reward": torch.randn(BATCH, generator=g, dtype=torch.float64),
        "next_obs": next_obs,
        "terminated": torch.rand(BATCH, generator=g) < 0.3,
    }


def trained(module: SimbaV2Module, updates: int = 5) -> SimbaV2Module:
    for number in range(updates):
        torch.manual_seed(number)
        module.update(transitions(number))
        module.updates += 1
    return module


def unit(x: Tensor) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True).clamp_min(1e-8)


class Transcription:
    """The algorithm with formulas on named weights, one critic after the other, five optimisers and torch.distributions."""

    def __init__(self, module: SimbaV2Module, c_rr: float = 0.0, c_var: float = 0.0):
        self.c_rr, self.c_var, self.spl, self.members = c_rr, c_var, module.spl, module.critics.members
        networks = ("actor", "critics", "log_alpha", *(("encoder", "model") if self.spl else ()))
        self.w = {n: p.detach().clone().requires_grad_() for n, p in module.named_parameters() if n.split(".")[0] in networks}
        self.targets = {n: p.detach().clone() for n, p in self.w.items() if n.split(".")[0] in ("critics", "encoder", "model")}
        self.hyper = [n for n in self.w if n.endswith(("dense.weight", "inner.weight", "outer.weight"))]
        rates = {name: ENCODER_LR if name in ("encoder", "model") else LR for name in networks}
        self.optimizers = {name: (torch.optim.Adam(self.of(name), lr=rate), rate) for name, rate in rates.items()}
        self.bins, self.step = module.bins.clone(), 0

    def of(self, network: str) -> list[Tensor]:
        return [p for n, p in self.w.items() if n.split(".")[0] == network]

    def embed(self, w: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
        x = unit(torch.cat([x, x.new_full((len(x), 1), 3.0)], 1))
        return unit(w[f"{name}.scaler.weight"] * (x @ w[f"{name}.dense.weight"].T))

    def trunk(self, w: dict[str, Tensor], name: str, blocks: int, x: Tensor, latents: Iterable[Tensor]) -> Tensor:
        if self.spl:
            projected = x @ w[f"{name}.projection.weight"].T + w[f"{name}.projection.bias"]
            x = torch.cat([unit(projected), *latents], 1)
        x = self.embed(w, f"{name}.embedder", x)
        for b in range(blocks):
            block = f"{name}.blocks.{b}"
            hidden = torch.relu(w[f"{block}.scaler.weight"] * (x @ w[f"{block}.inner.weight"].T)) + 1e-8
            y = unit(hidden @ w[f"{block}.outer.weight"].T)
            alpha = w[f"{block}.alpha.weight"] * (1 / (blocks + 1)) / (1 / math.sqrt(x.shape[1]))
            x = unit(x + alpha * (y - x))
        return x

    def head(self, w: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
        return (w[f"{name}.scaler.weight"] * (x @ w[f"{name}.inner.weight"].T)) @ w[f"{name}.outer.weight"].T + w[f"{name}.bias"]

    def policy(self, obs: Tensor, *latents: Tensor) -> tuple[Tensor, Tensor]:
        x = self.trunk(self.w, "actor.trunk", 1, obs, latents)
        mean, log_std = self.head(self.w, "actor.mean", x), -10 + 6 * (1 + torch.tanh(self.head(self.w, "actor.log_std", x)))
        normal = torch.distributions.Normal(mean, log_std.exp())
        squashed = torch.distributions.TransformedDistribution(normal, torch.distributions.TanhTransform(cache_size=1))
        action = squashed.rsample()
        return action, squashed.log_prob(action).sum(-1)

    def log_probabilities(self, w: dict[str, Tensor], obs: Tensor, action: Tensor, *latents: Tensor) -> list[Tensor]:
        found = []
        for j in range(self.members):
            own = {n: p[j].squeeze(0) if p[j].ndim > 1 else p[j] for n, p in w.items() if n.startswith("critics")}
            if self.spl:  # the ensemble keeps the weights of its plain layer transposed
                own["critics.trunk.projection.weight"] = w["critics.trunk.projection.weight"][j].T
            x = self.trunk(own, "critics.trunk", 2, torch.cat([obs, action], 1), latents)
            found.append(torch.log_softmax(self.head(own, "critics.head", x), -1))
        return found

    def predict(self, w: dict[str, Tensor], z: Tensor, action: Tensor) -> Tensor:
        layer = lambda name, x: x @ w[f"model.{name}.weight"].T + w[f"model.{name}.bias"]  # noqa: E731
        x = nn.functional.elu(layer("first", torch.cat([z, action], 1)))
        return unit(layer("last", nn.functional.elu(layer("second", x))))

    def redundancy(self, z: Tensor) -> Tensor:
        d, C = z.shape[1], z.T @ z / (BATCH - 1)
        rr = (C - C.diag().diag()).square().sum() / (d * (d - 1))
        return self.c_rr * rr + self.c_var * (1 - (z.var(0) + 1e-4).sqrt()).relu().mean()

    def update(self, batch: dict[str, Tensor]) -> None:
        obs, next_obs, action = batch["obs"], batch["next_obs"], batch["action"]
        old = {n: p.detach().clone() for n, p in self.w.items()}
        if self.spl:
            z, goal = self.embed(self.w, "encoder", obs), self.embed(self.w, "encoder", next_obs).detach()
            loss = (self.predict(self.w, z, action) - goal).square().mean() + self.redundancy(z)
            self.descend(loss, "encoder", "model")

        seen = [self.embed(self.targets, "encoder", obs)] if self.spl else []
        drawn, log_prob = self.policy(obs, *seen)
        both = [*seen, self.predict(old, seen[0], drawn)] if self.spl else []
        q = torch.stack([p.exp() @ self.bins for p in self.log_probabilities(old, obs, drawn, *both)]).min(0).values
        self.descend((log_prob * self.w["log_alpha"].detach().exp() - q).mean(), "actor")
        self.descend(self.w["log_alpha"].exp() * (-log_prob.detach().mean() + 0.5 * ACTION), "log_alpha")

        with torch.no_grad():
            next_seen = [self.embed(self.targets, "encoder", next_obs)] if self.spl else []
            drawn, log_prob = self.policy(next_obs, *next_seen)
            after = [*next_seen, self.predict(self.targets, next_seen[0], drawn)] if self.spl else []
            candidates = self.log_probabilities(self.targets, next_obs, drawn, *after)
            means = [p.exp() @ self.bins for p in candidates]
            target = torch.zeros(BATCH, K, dtype=torch.float64)
            for b in range(BATCH):
                chosen = candidates[min(range(self.members), key=lambda j: means[j][b].item())][b].exp()
                cost = self.w["log_alpha"].exp() * log_prob[b]
                goes_on = 1 - float(batch["terminated"][b])
                for k in range(K):
                    value = min(max(batch["reward"][b] + GAMMA * goes_on * (self.bins[k] - cost), -5.0), 5.0)
                    place = (value + 5.0) / (10.0 / (K - 1))
                    low, high = math.floor(place), math.ceil(place)
                    target[b, low] += chosen[k] * (high + (low == high) - place)
                    target[b, high] += chosen[k] * (place - low)
            seen_then = [*seen, self.predict(self.targets, seen[0], action)] if self.spl else []
        predicted = self.log_probabilities(self.w, obs, action, *seen_then)
        self.descend(sum(-(target * p).sum(1).mean() for p in predicted), "critics")
        for name, value in self.targets.items():
            value.mul_(1 - TAU).add_(self.w[name].detach(), alpha=TAU)
        self.step += 1

    def descend(self, loss: Tensor, *networks: str) -> None:
        for parameter in self.w.values():
            parameter.grad = None
        loss.backward()
        for network in networks:
            optimizer, rate = self.optimizers[network]
            optimizer.param_groups[0]["lr"] = rate + (FINAL_LR - rate) * self.step / TOTAL
            optimizer.step()
        for name in self.hyper:
            if name.split(".")[0] in networks:
                self.w[name].data = unit(self.w[name].data)


AGENTS = {
    "SimbaV2, one critic": {"num_critics": 1},
    "SimbaV2, two critics": {"num_critics": 2},
    "SPL, one critic": {"num_critics": 1, "spl": True},
    "SPL and R2R2, two critics": {"num_critics": 2, "spl": True, "regularizer": (0.5, 0.3)},
}


@pytest.mark.parametrize("agent", AGENTS)
def test_updates_are_those_of_the_algorithm_written_out(agent: str):
    options = dict(AGENTS[agent])
    coefficients = options.pop("regularizer", None)
    module = without_trainer(**options, regularizer=coefficients and RedundancyReduction(*coefficients))
    expected = Transcription(module, *(coefficients or ()))
    begun = {name: value.detach().clone() for name, value in module.named_parameters()}
    trained(module, 3)
    for number in range(3):
        torch.manual_seed(number)
        expected.update(transitions(number))
    for name, value in expected.w.items():
        assert not torch.equal(module.get_parameter(name), begun[name]), f"{name} did not learn"
        torch.testing.assert_close(module.get_parameter(name), value, rtol=1e-7, atol=1e-7, msg=lambda text, n=name: f"{n}: {text}")
    for name, value in expected.targets.items():
        torch.testing.assert_close(module.get_parameter(f"target_{name}"), value, rtol=1e-7, atol=1e-7)


def test_rows_keep_length_one_and_targets_do_not():
    module = trained(without_trainer(spl=True, num_critics=2), 20)
    for weight in hyper_weights(module.actor, module.critics, module.encoder):
        torch.testing.assert_close(weight.norm(dim=-1), torch.ones(weight.shape[:-1], dtype=torch.float64), rtol=0, atol=1e-9)
    assert min(weight.norm(dim=-1).min() for weight in hyper_weights(module.target_critics)) < 0.999


def test_without_self_prediction_there_is_nothing_of_it():
    names = [name for name, _ in without_trainer().named_parameters()]
    assert not any("encoder" in name or "model" in name or "projection" in name for name in names)
    with pytest.raises(RuntimeError, match="spl=true"):
        without_trainer().representation(torch.zeros(1, OBS))


def test_coefficients_of_zero_change_not_a_bit():
    plain = trained(without_trainer(spl=True))
    zero = trained(without_trainer(spl=True, regularizer=RedundancyReduction(coef_rr=0.0, coef_var=0.0)))
    full = trained(without_trainer(spl=True, regularizer=RedundancyReduction()))
    assert all(torch.equal(value, zero.state_dict()[name]) for name, value in plain.state_dict().items())
    assert not torch.equal(plain.encoder.dense.weight, full.encoder.dense.weight)


def test_the_actor_acts_on_the_encoder_it_is_told():
    obs = transitions(9)["obs"]
    online, target = trained(without_trainer(spl=True)), trained(without_trainer(spl=True, act_encoder="target"))
    torch.testing.assert_close(online.exploit(obs), online.actor.mode(obs, online.encoder(obs)))
    torch.testing.assert_close(target.exploit(obs), target.actor.mode(obs, target.target_encoder(obs)))
    assert not torch.equal(online.exploit(obs), target.exploit(obs))
    assert torch.equal(online.representation(obs), online.encoder(obs))
    assert online.explore(obs).abs().max() <= 1


def test_gradients_reach_whom_they_should():
    module = without_trainer(spl=True)
    batch = transitions(0)
    module.representation_objective(batch)[0].backward()
    reached = {name.split(".")[0] for name, p in module.named_parameters() if p.grad is not None}
    assert reached == {"encoder", "model"}
    module.zero_grad()
    latents = module._target_latents(batch["obs"])
    module.value_objective(batch, latents, module._target(batch, module.alpha, latents)).backward()
    assert {name.split(".")[0] for name, p in module.named_parameters() if p.grad is not None} == {"critics"}


def test_a_cut_episode_goes_on_and_a_terminated_one_does_not():
    module = without_trainer()
    batch = transitions(0)
    means = []
    for terminated in (False, True):
        torch.manual_seed(0)
        one = {**batch, "reward": torch.full_like(batch["reward"], 0.5), "terminated": torch.full((BATCH,), terminated)}
        means.append(module._target(one, module.alpha, ()) @ module.bins)
    torch.testing.assert_close(means[1], torch.full_like(batch["reward"], 0.5), atol=1e-6, rtol=0)
    assert (means[0] - 0.5).abs().min() > 1e-4


def test_learning_rates_fall_linearly_and_stay():
    module = without_trainer(spl=True)
    found = []
    for updates in (0, 5, 10, 99):
        module.updates = updates
        module._set_learning_rates(*module.optimizers())
        found.append([group["lr"] for optimizer in module.optimizers() for group in optimizer.param_groups])
    middle, encoders = (LR + FINAL_LR) / 2, (ENCODER_LR + FINAL_LR) / 2
    for row, expected in zip(found, [[LR, ENCODER_LR, LR], [middle, encoders, middle], *[[FINAL_LR] * 3] * 2], strict=True):
        assert row == pytest.approx(expected)


@pytest.mark.parametrize(("scale", "heard"), [(1.0, "below 3.8e-02"), ("sqrt_dim", "")])
def test_a_run_counts_its_updates_and_tells_of_an_idle_decorrelation(monkeypatch: pytest.MonkeyPatch, scale: object, heard: str):
    told: list[str] = []
    monkeypatch.setattr("lightning_modules.r2r2.simba_module.rank_zero_info", told.append)
    experience = SimpleNamespace(total_env_steps=1_000, replay_capacity=500, learning_starts=100)
    monkeypatch.setattr(SimbaV2Module, "experience", experience)
    monkeypatch.setattr(SimbaV2Module, "trainer", SimpleNamespace(world_size=2, strategy=None))
    module = without_trainer(spl=True, utd=0.5, regularizer=RedundancyReduction(latent_scale=scale))
    module.setup("fit")
    assert module.total_updates == 250
    assert heard in " ".join(told)
    assert bool(told) == bool(heard)


def test_a_compiled_update_is_the_same():
    options = {"spl": True, "regularizer": RedundancyReduction(), "critic_blocks": 1}
    plain, compiled = without_trainer(**options), without_trainer(**options)
    compiled.compile(backend="eager")
    for one, other in zip(trained(plain, 1).parameters(), trained(compiled, 1).parameters(), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_critics": 3}, "must be 1 or 2"),
        ({"regularizer": RedundancyReduction()}, "set spl=true"),
        ({"obs_dim": None}, "needs obs_dim"),
    ],
)
def test_bad_arguments(options: dict[str, object], message: str):
    with pytest.raises(ValueError, match=message):
        SimbaV2Module(**{"obs_dim": 3, "action_dim": 1, **options})
