"""Two ranks with a batch each do what one process does with both batches."""

from pathlib import Path

import pytest
from parity import trained
from short_runs import CONFIGS

SHORT = [
    *("--config", CONFIGS / "overlays/ddp.yaml", "--data.class_path=toy_experience.PooledReplay"),
    *("--data.init_args.total_env_steps=240", "--data.init_args.eval_every_env_steps=120", "--data.init_args.learning_starts=40"),
    *("--data.init_args.time_limit=20", "--data.init_args.eval_episodes=3", "--data.init_args.test_episodes=5"),
    *("--model.init_args.hidden=[16]", "--model.init_args.log_every_updates=8", "--model.init_args.lr=1e-4"),
    "--consistency.every_n_batches=5",
]
ONE = ["--data.init_args.num_envs=2", "--model.init_args.batch_size=32", "--model.init_args.utd=0.5"]
TWO = ["--data.init_args.num_envs=1", "--model.init_args.batch_size=16"]
NOISE = '{"class_path": "toy_experience.NoiseFromMeans"}'
GROUNDING = '{"class_path": "callbacks.PrototypeGrounding", "init_args": {"every_env_steps": 60}}'

AGENTS = {
    "sac": [CONFIGS / "sac/pendulum.yaml", f"--trainer.callbacks=[{NOISE}]"],
    "protosac": [
        CONFIGS / "protosac/pendulum.yaml",
        f"--trainer.callbacks=[{NOISE}, {GROUNDING}]",
        *("--model.init_args.num_prototypes=4", "--model.init_args.latent_dim=3"),
    ],
    "protosac, mixture": [
        CONFIGS / "protosac/pendulum.yaml",
        f"--trainer.callbacks=[{NOISE}, {GROUNDING}]",
        *("--model.init_args.num_prototypes=4", "--model.init_args.latent_dim=3", "--model.init_args.mixing=mixture"),
    ],
}


@pytest.mark.parametrize("agent", AGENTS)
def test_two_ranks_equal_one_process_on_the_pooled_batch(tmp_path: Path, agent: str):
    config, *options = AGENTS[agent]
    words = ["--config", config, *SHORT, *options]
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, metrics_of_one = trained(tmp_path / "one", [*words, *ONE], 1)
    two, metrics_of_two = trained(tmp_path / "two", [*words, *TWO], 2)
    counted = [name for name in one if "usage" in name]  # what happened in the ranks' own environments
    worst = {name: float((one[name] - two[name]).abs().max()) for name in one if name not in counted}
    assert max(worst.values()) < 1e-6, worst
    assert metrics_of_one == pytest.approx(metrics_of_two, rel=1e-4)
    assert metrics_of_one["test/length"] == 20
