"""What is reported of an agent with prototypes: right numbers on one process and on several, and nothing changed in training."""

import json
import math
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Trainer
from resumption import undisturbed
from short_runs import CONFIGS

from callbacks.prototype_grounding import PrototypeGrounding
from callbacks.prototype_report import PrototypeReport
from datamodules.rl.datamodule import RLDataModule
from lightning_modules.protosac.module import ProtoSACModule
from lightning_modules.rl.sac_module import SACModule

DATA = {"env": "gym:Pendulum-v1", "total_env_steps": 96, "eval_every_env_steps": 96, "time_limit": 12}
GROUNDING = '{"class_path": "callbacks.PrototypeGrounding", "init_args": {"every_env_steps": 32}}'
REPORT = (
    '{"class_path": "callbacks.PrototypeReport", "init_args": '
    '{"top_m": [1, 9], "fidelity_every_validation": true, "episodes": 2, "figures_at_test": false}}'
)
PENDULUM = [
    *("--config", CONFIGS / "protosac/pendulum.yaml"),
    *("--data.init_args.total_env_steps=96", "--data.init_args.eval_every_env_steps=96", "--data.init_args.learning_starts=32"),
    *("--data.init_args.time_limit=12", "--data.init_args.eval_episodes=3", "--data.init_args.test_episodes=3"),
    *("--model.init_args.hidden=[8]", "--model.init_args.batch_size=16", "--model.init_args.num_prototypes=4"),
]


def agent():
    torch.manual_seed(0)
    module = ProtoSACModule(num_prototypes=6, latent_dim=4, hidden=[16], obs_dim=3, action_dim=1)
    states = torch.randn(40, 3)
    module.actor.initialize(states / states[:, :2].norm(dim=1, keepdim=True))
    module.actor.embeddings.data += 0.2 * torch.randn(6, 4)
    return module


def measured(folder: Path, module, data: RLDataModule, *callbacks) -> dict[str, float]:
    trainer = Trainer(
        default_root_dir=folder,
        logger=False,
        callbacks=[*callbacks],
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        use_distributed_sampler=False,
    )
    (found,) = trainer.test(module, data, verbose=False)
    return found


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A test of an agent whose prototypes have drifted, with the report before the grounding in the list."""
    folder = tmp_path_factory.mktemp("report")
    data = RLDataModule(**DATA, test_episodes=3)
    metrics = measured(folder, agent(), data, PrototypeReport(episodes=2, cards=4), PrototypeGrounding())
    return folder, metrics


def test_returns_of_few_prototypes_are_those_of_the_same_agent_made_so(report):
    _, metrics = report
    data = RLDataModule(**DATA, test_episodes=3)
    module = agent()
    module.actor.sync()
    for m in (1, 3, 5):
        module.actor.top_m = m
        expected = data.evaluate(module.exploit, torch.arange(10, 13)).returns.mean().item()
        assert metrics[f"test/return_top{m}"] == pytest.approx(expected, rel=1e-5)
    assert len({metrics[f"test/return_top{m}"] for m in (1, 3, 5)}) == 3


def test_measures_are_those_of_the_visited_states(report):
    _, metrics = report
    data, module = RLDataModule(**DATA, test_episodes=3), agent()
    drift = module.actor.drift().item()
    module.actor.sync()
    obs = torch.cat([data.record_episode(module.exploit, number).obs for number in (10, 11)])
    weights = module.actor(obs).weights
    entropy = -(weights * weights.log()).sum(dim=1)
    assert metrics["test/effective_prototypes"] == pytest.approx(entropy.exp().mean().item(), rel=1e-5)
    assert metrics["test/prototypes_used"] == pytest.approx((weights.mean(dim=0) > 0.01).float().mean().item())
    assert metrics["test/drift"] == pytest.approx(drift, rel=1e-5)
    assert drift > 0.1
    noise = 0.01 * obs.std(dim=0, correction=0) * torch.randn(obs.shape, generator=torch.Generator().manual_seed(0))
    before, after = (module.actor(states).weights.topk(3, dim=1).indices.tolist() for states in (obs, obs + noise))
    overlaps = [len({*a} & {*b}) / len({*a} | {*b}) for a, b in zip(before, after, strict=True)]
    assert metrics["test/explanation_stability"] == pytest.approx(sum(overlaps) / len(overlaps), abs=1e-6)


def test_the_file_holds_every_prototype(report):
    folder, _ = report
    prototypes = json.loads((folder / "prototypes.json").read_text())
    data, module = RLDataModule(**DATA, test_episodes=3), agent()
    module.actor.sync()
    records = {number: data.record_episode(module.exploit, number).obs for number in (10, 11)}
    embedded = module.actor.encoder(torch.cat([*records.values()]))
    assert [prototype["prototype"] for prototype in prototypes] == [*range(6)]
    assert sum(prototype["usage"] for prototype in prototypes) == pytest.approx(1, abs=1e-5)
    for k, prototype in enumerate(prototypes):
        assert prototype["state"] == pytest.approx(module.actor.prototype_states[k].tolist())
        assert prototype["mean_action"] == pytest.approx(module.actor.means[k].tanh().tolist())
        assert prototype["std_before_squashing"] == pytest.approx(module.actor.stds[k].tolist())
        distances = sorted(math.dist(module.actor.embeddings[k].tolist(), z) for z in embedded.tolist())
        assert [near["distance"] for near in prototype["nearest"]] == pytest.approx(distances[:3], rel=1e-3, abs=1e-5)
        for near in prototype["nearest"]:
            assert near["state"] == pytest.approx(records[near["episode"]][near["decision"]].tolist(), abs=1e-5)
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_figures_are_published(report):
    folder, _ = report
    names = {path.name for path in (folder / "figures").iterdir()}
    assert names == {f"{name}_0.png" for name in ("prototype_cards", "decision_timeline", "episode_strip")}


def test_normalised_observations_are_measured_normalised_and_shown_in_units(tmp_path):
    data, plain = (RLDataModule(**DATA, test_episodes=1, normalise_observations=on) for on in (True, False))
    data.normaliser.observe(torch.randn(50, 3) * torch.tensor([0.5, 0.8, 4.0]) + 0.3)
    data.normaliser.merge_ranks()
    metrics = measured(tmp_path, agent(), data, PrototypeReport(), PrototypeGrounding())
    module = agent()
    module.actor.sync()
    obs = plain.record_episode(lambda obs: module.exploit(data.normaliser(obs)), 10).obs
    weights = module.actor(data.normaliser(obs)).weights
    expected = (-(weights * weights.log()).sum(dim=1)).exp().mean().item()
    assert metrics["test/effective_prototypes"] == pytest.approx(expected, rel=1e-4)
    shared = data.normaliser.shared
    prototypes = json.loads((tmp_path / "prototypes.json").read_text())
    for k, prototype in enumerate(prototypes):
        state = module.actor.prototype_states[k].double() * shared.variance.sqrt() + shared.mean
        assert prototype["state"] == pytest.approx(state.tolist(), rel=1e-4, abs=1e-5)
        near = prototype["nearest"][0]
        assert near["state"] == pytest.approx(obs[near["decision"]].tolist(), abs=1e-4)


def test_ranks_of_unequal_share_measure_what_one_process_does_and_training_is_untouched(tmp_path):
    with_report, without = tmp_path / "with", tmp_path / "without"
    with_report.mkdir()
    without.mkdir()
    reported = undisturbed(with_report, [*PENDULUM, f"--trainer.callbacks=[{GROUNDING}, {REPORT}]"], 2)
    alone = undisturbed(without, [*PENDULUM, f"--trainer.callbacks=[{GROUNDING}]"], 2)
    one, other = (torch.load(folder / "checkpoints/last.ckpt", weights_only=True) for folder in (reported, alone))
    assert all(torch.equal(value, other["state_dict"][name]) for name, value in one["state_dict"].items())
    found = json.loads((reported / "summary.json").read_text())["metrics"]
    best = next((reported / "checkpoints").glob("best*.ckpt"))
    module = ProtoSACModule.load_from_checkpoint(best, weights_only=True)
    data = RLDataModule(**DATA, eval_episodes=3, test_episodes=3)
    module.actor.sync()
    module.eval()
    for stage, numbers in (("val", range(3)), ("test", range(3, 6))):
        for name, m in (("top1", 1), ("top9", 4)):
            module.actor.top_m = m
            expected = data.evaluate(module.exploit, torch.tensor([*numbers])).returns.mean().item()
            assert found[f"{stage}/return_{name}"] == pytest.approx(expected, rel=1e-5), (stage, name)
    module.actor.top_m = None
    obs = torch.cat([data.record_episode(module.exploit, number).obs for number in (3, 5)])
    weights = module.actor(obs).weights
    expected = (-(weights * weights.log()).sum(dim=1)).exp().mean().item()
    assert found["test/effective_prototypes"] == pytest.approx(expected, rel=1e-5)
    assert (reported / "prototypes.json").exists()
    assert not (reported / "figures").exists()


def test_bad_arguments_and_modules(tmp_path):
    for bad in ({"top_m": [0]}, {"episodes": 0}, {"noise": 0.0}, {"cards": 0}, {"nearest": 0}):
        with pytest.raises(ValueError, match="PrototypeReport needs positive numbers"):
            PrototypeReport(**bad)
    with pytest.raises(ValueError, match="needs a module with a prototype actor, which SACModule has not"):
        measured(tmp_path, SACModule(hidden=[4], obs_dim=3, action_dim=1), RLDataModule(**DATA), PrototypeReport())
