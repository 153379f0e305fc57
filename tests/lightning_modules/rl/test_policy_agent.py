from dataclasses import asdict

import gymnasium as gym
import numpy as np
import pytest
import torch
from lightning.pytorch.demos.boring_classes import BoringModel
from processes import launch
from short_runs import CONFIGS

from lightning_modules.protosac.module import ProtoSACModule
from lightning_modules.rl.policy_agent import PolicyAgent
from lightning_modules.rl.sac_module import SACModule

OBS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)


def write(path, module, class_path, **parts):
    """Write a checkpoint as the launcher does."""
    names = {"_class_path": class_path, "_instantiator": "lightning.pytorch.cli.instantiate_module"}
    checkpoint = {
        "pytorch-lightning_version": "2.6.0",
        "state_dict": module.state_dict(),
        "hyper_parameters": {**names, **module.hparams},
        "hparams_name": "kwargs",
        "off_policy": {"updates": 0, "ratio": module.ratio.state_dict()} if hasattr(module, "ratio") else None,
        **parts,
    }
    torch.save(checkpoint, path)
    return path


@pytest.fixture
def module():
    torch.manual_seed(0)
    module = ProtoSACModule(num_prototypes=4, latent_dim=3, hidden=[8], obs_dim=3, action_dim=2)
    module.actor.initialize(torch.randn(20, 3))
    module.actor.embeddings.data += 0.3 * torch.randn(4, 3)
    return module


def test_prototypes_act_from_their_states(tmp_path, module):
    agent = PolicyAgent.from_checkpoint(write(tmp_path / "a.ckpt", module, "lightning_modules.ProtoSACModule"))
    drifted = module.exploit(torch.from_numpy(OBS))
    assert not np.allclose(agent.act(OBS), drifted.detach().numpy(), atol=1e-3)
    module.actor.sync()
    expected = module.exploit(torch.from_numpy(OBS)).detach().numpy()
    assert np.allclose(agent.act(OBS), expected, atol=1e-6)
    assert agent.act(OBS[0]).shape == (2,)
    assert np.allclose(agent.act(OBS[0]), expected[0], atol=1e-6)
    assert agent.act(OBS).dtype == np.float32
    assert not agent.module.training


def test_explanations_are_those_of_the_actor(tmp_path, module):
    agent = PolicyAgent.from_checkpoint(write(tmp_path / "a.ckpt", module, "lightning_modules.ProtoSACModule"))
    module.actor.sync()
    found, expected = agent.explain(OBS[0], top=None), module.actor.explain(torch.from_numpy(OBS[0]), top=None)
    assert [e.index for e in found] == [e.index for e in expected]
    assert all(torch.equal(a.prototype_state, b.prototype_state) for a, b in zip(found, expected, strict=True))
    pre_squash = sum(e.contribution for e in found)
    assert np.allclose(pre_squash.detach().tanh().numpy(), agent.act(OBS[0]), atol=1e-6)
    assert len(agent.explain(OBS[0])) == 3


def test_observations_are_normalised_as_in_training_and_states_are_shown_in_units(tmp_path, module):
    count, mean, variance = 50, torch.tensor([1.0, -2.0, 3.0]).double(), torch.tensor([4.0, 0.25, 9.0]).double()
    normaliser = {"count": count, "mean": mean, "m2": variance * count}
    path = write(tmp_path / "a.ckpt", module, "lightning_modules.ProtoSACModule", RLDataModule={"normaliser": normaliser})
    plain = PolicyAgent.from_checkpoint(write(tmp_path / "b.ckpt", module, "lightning_modules.ProtoSACModule"))
    agent = PolicyAgent.from_checkpoint(path)
    units = (OBS * variance.sqrt().numpy() + mean.numpy()).astype(np.float32)
    assert np.allclose(agent.act(units), plain.act(OBS), atol=1e-5)
    one, other = agent.explain(units[0])[0], plain.explain(OBS[0])[0]
    assert torch.allclose(one.prototype_state, (other.prototype_state * variance.sqrt() + mean).float(), atol=1e-5)
    empty = {"count": 0, "mean": torch.zeros(3), "m2": torch.zeros(3)}
    path = write(tmp_path / "c.ckpt", module, "lightning_modules.ProtoSACModule", RLDataModule={"normaliser": empty})
    assert np.array_equal(PolicyAgent.from_checkpoint(path).act(OBS), plain.act(OBS))


def test_sac_acts_and_cannot_explain(tmp_path):
    module = SACModule(hidden=[8], obs_dim=3, action_dim=2)
    agent = PolicyAgent.from_checkpoint(write(tmp_path / "a.ckpt", module, "lightning_modules.SACModule"))
    assert np.allclose(agent.act(OBS), module.exploit(torch.from_numpy(OBS)).detach().numpy(), atol=1e-6)
    with pytest.raises(TypeError, match="SACModule cannot explain"):
        agent.explain(OBS[0])


@pytest.mark.parametrize(
    ("obs", "match"),
    [
        (np.zeros(4), r"\[3\] or \[B, 3\], got \[4\]"),
        (np.zeros((1, 1, 3)), r"got \[1, 1, 3\]"),
        (np.array([0.0, np.nan, 0.0]), "not finite"),
    ],
)
def test_observations_that_do_not_fit(module, obs, match):
    with pytest.raises(ValueError, match=match):
        PolicyAgent(module).act(obs)


def test_checkpoints_that_hold_no_agent(tmp_path, module):
    boring = BoringModel()
    boring_path = "lightning.pytorch.demos.boring_classes.BoringModel"
    cases = {
        r"which does not act": write(tmp_path / "a.ckpt", boring, boring_path),
        r"import nowhere\.at_all first": write(tmp_path / "b.ckpt", module, "nowhere.at_all.Agent"),
        r"does not name its module's class": write(tmp_path / "c.ckpt", module, None),
    }
    for match, path in cases.items():
        with pytest.raises(ValueError, match=match):
            PolicyAgent.from_checkpoint(path)
    with pytest.raises(FileNotFoundError):
        PolicyAgent.from_checkpoint(tmp_path / "none.ckpt")


def test_a_trained_agent_plays_without_the_trainer(tmp_path):
    words = ["--config", CONFIGS / "protosac/pendulum.yaml", "--config", CONFIGS / "overlays/smoke.yaml"]
    (ended,) = launch(words, tmp_path)
    assert ended.status == 0, ended.output
    agent = PolicyAgent.from_checkpoint(tmp_path / "runs/protosac/pendulum/0/checkpoints/last.ckpt")
    env = gym.wrappers.RescaleAction(gym.make("Pendulum-v1"), np.float32(-1), np.float32(1))
    obs, _ = env.reset(seed=0)
    for _ in range(10):
        obs, *_ = env.step(agent.act(obs))
    weights = [asdict(part)["weight"] for part in agent.explain(obs, top=None)]
    assert sum(weights) == pytest.approx(1, abs=1e-5)
