import pytest
import torch

from benchmarks import sac_profile
from benchmarks.sac_agents import Setting, our_agent, our_update, their_agent
from benchmarks.sac_profile import NETWORKS, Clock, profile
from lightning_modules.rl import sac_module

SETTING = Setting("Pendulum-v1", hidden=8, batch_size=8, train_freq=4)


def size(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_both_sides_have_equal_networks_and_make_equally_many_updates():
    pytest.importorskip("stable_baselines3")
    trainer, ours, data = our_agent(SETTING, 40, learning_starts=8)
    trainer.fit(ours, datamodule=data)
    theirs = their_agent(SETTING, 40, learning_starts=8)
    theirs.learn(40)
    assert (data.env_steps, ours.updates) == (theirs.num_timesteps, theirs._n_updates) == (40, 32)
    assert (size(ours.actor), size(ours.critics)) == (size(theirs.actor), size(theirs.critic))
    assert [group["lr"] for optimizer in trainer.optimizers for group in optimizer.param_groups] == 2 * [theirs.lr_schedule(1)]
    assert (ours.discount, ours.target_rate, ours.target_entropy) == (theirs.gamma, theirs.tau, theirs.target_entropy)


def test_an_update_trains_the_agent_after_the_trainer_has_ended():
    update = our_update(SETTING)
    assert all(torch.isfinite(value) for value in update().values())
    assert update()["critic_loss"] != update()["critic_loss"]


def test_a_clock_does_not_count_twice(monkeypatch: pytest.MonkeyPatch):
    now = [0.0]
    monkeypatch.setattr("benchmarks.sac_profile.time.perf_counter", lambda: now[0])

    class Work:
        def outer(self) -> None:
            now[0] += 1.0
            self.inner(2.0)
            self.inner(3.0)

        def inner(self, seconds: float) -> None:
            now[0] += seconds

    work, clock = Work(), Clock()
    clock.wrap(work, "outer", "whole: rest")
    clock.wrap(work, "inner", lambda seconds: f"part: {seconds}")
    work.outer()
    assert clock.seconds == {"whole: rest": 1.0, "part: 2.0": 2.0, "part: 3.0": 3.0}


@pytest.mark.parametrize("name", sac_profile.MODULES)
def test_a_profile_names_every_network(name: str):
    moving = sac_module.move_towards
    parts = profile(name, SETTING, steps=16)
    assert {f"{network}: {part}" for network in NETWORKS for part in ("backward", "Adam")} < parts.keys()
    assert {"collector: environment", "replay: sample", "replay: write", "critics: targets", "target critics: move"} < parts.keys()
    assert min(parts.values()) > 0
    assert sac_module.move_towards is moving
