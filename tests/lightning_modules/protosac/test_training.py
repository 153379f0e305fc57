"""ProtoSAC on the common trainer: its objective, its grounding, and a killed run that goes on as if it had not been."""

from pathlib import Path

import pytest
import torch
from resumption import assert_same_run, killed_and_continued, shards, state, undisturbed
from short_runs import CONFIGS

from lightning_modules.protosac.module import ProtoSACModule

PENDULUM = [
    *("--config", CONFIGS / "protosac/pendulum.yaml"),
    *("--data.init_args.total_env_steps=192", "--data.init_args.eval_every_env_steps=96", "--data.init_args.learning_starts=40"),
    *("--data.init_args.num_envs=2", "--data.init_args.time_limit=30", "--data.init_args.replay_capacity=400"),
    *("--data.init_args.eval_episodes=1", "--data.init_args.test_episodes=1"),
    *("--model.init_args.hidden=[8]", "--model.init_args.batch_size=16", "--model.init_args.num_prototypes=4"),
    '--trainer.callbacks=[{"class_path": "callbacks.PrototypeGrounding", "init_args": {"every_env_steps": 50}}]',
    "--resume.every_n_steps=16",
]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return undisturbed(tmp_path_factory.mktemp("undisturbed"), PENDULUM, 1)


@pytest.mark.parametrize("kill", ["0 batch_end", "100 before_optimizer_step", "112 validation_end"])
def test_a_killed_run_goes_on(tmp_path: Path, reference: Path, kill: str):
    assert_same_run(killed_and_continued(tmp_path, PENDULUM, 1, kill), reference)


def test_two_ranks_share_their_prototypes_and_go_on(tmp_path: Path):
    words = [
        *(*PENDULUM, "--config", CONFIGS / "overlays/ddp.yaml", "--data.init_args.num_envs=1"),
        *("--data.init_args.eval_episodes=2", "--data.init_args.test_episodes=2"),
        *("--model.init_args.reseed_dead=true", "--model.init_args.num_prototypes=16"),
        '--trainer.callbacks+={"class_path": "toy.KeepWeights"}',
    ]
    folder = undisturbed(tmp_path, words, 2)
    weights = [torch.load(tmp_path / f"weights_{rank}.pt", weights_only=True) for rank in range(2)]
    apart = {name for name, value in weights[0].items() if not torch.equal(value, weights[1][name])}
    assert apart <= {"actor.usage_sum"}, "the ranks act in environments of their own"
    first, second = shards(folder).values()
    assert not torch.equal(first["replay"]["fields"]["obs"], second["replay"]["fields"]["obs"])
    (tmp_path / "killed").mkdir()
    assert_same_run(killed_and_continued(tmp_path / "killed", words, 2, "130 before_optimizer_step"), folder)


def test_every_prototype_ends_on_a_state_of_its_own(reference: Path):
    (shard,) = shards(reference).values()
    seen = {tuple(row) for row in shard["replay"]["fields"]["obs"].tolist()}
    prototypes = [tuple(row) for row in state(reference)["state_dict"]["actor.prototype_states"].tolist()]
    assert len(set(prototypes)) == 4
    assert set(prototypes) <= seen


@pytest.mark.parametrize("mixing", ["blend", "mixture"])
def test_the_objective_is_an_expectation_over_the_acting_prototypes(mixing: str):
    torch.manual_seed(0)
    coefficients = {"orthogonality": 0.3, "negative_entropy": 0.7}
    module = ProtoSACModule(num_prototypes=3, latent_dim=2, hidden=[8], mixing=mixing, obs_dim=2, action_dim=1, **coefficients)
    obs, alpha = torch.randn(5, 2), torch.tensor(0.2)
    torch.manual_seed(1)
    loss, log_prob, logs = module.policy_objective(obs, alpha)
    torch.manual_seed(1)
    output = module.actor(obs)
    samples = output.weighted_samples()
    expected, expected_log_prob = torch.zeros(()), torch.zeros(5)
    for k in range(samples.weights.shape[1]):
        value = module.critics(obs, samples.actions[:, k]).amin(dim=0)
        expected = expected + (samples.weights[:, k] * (alpha * samples.log_prob[:, k] - value)).mean()
        expected_log_prob = expected_log_prob + samples.weights[:, k] * samples.log_prob[:, k]
    terms = module.actor.regularizers(output.weights)
    expected = expected + 0.3 * terms["orthogonality"] + 0.7 * terms["negative_entropy"]
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    assert torch.allclose(log_prob, expected_log_prob, atol=1e-6)
    assert samples.weights.shape[1] == (1 if mixing == "blend" else 3)
    assert not log_prob.requires_grad
    assert logs["effective_prototypes"] > 1
