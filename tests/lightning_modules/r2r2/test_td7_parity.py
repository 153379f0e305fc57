"""Two ranks with half of every batch each do what one process does with whole batches, if they share their statistics."""

from pathlib import Path

import pytest
import torch
from parity import trained
from short_runs import CONFIGS

SHORT = [
    *("--config", CONFIGS / "r2r2/td7_pendulum.yaml", "--config", CONFIGS / "overlays/ddp.yaml"),
    '--trainer.callbacks=[{"class_path": "toy_experience.NoiseFromMeans"}]',
    "--data.class_path=pooled_priorities.PooledPriorities",
    *("--data.init_args.total_env_steps=240", "--data.init_args.eval_every_env_steps=120", "--data.init_args.learning_starts=40"),
    *("--data.init_args.time_limit=20", "--data.init_args.eval_episodes=3", "--data.init_args.test_episodes=5"),
    *("--model.init_args.latent_dim=6", "--model.init_args.hidden=16", "--model.init_args.lr=1e-4"),
    *("--model.init_args.use_checkpoints=false", "--model.init_args.target_update_rate=7"),
    *("--model.init_args.log_every_updates=8", "--consistency.every_n_batches=5"),
]
ONE = ["--data.init_args.num_envs=2", "--model.init_args.batch_size=32", "--model.init_args.utd=0.5"]
TWO = ["--data.init_args.num_envs=1", "--model.init_args.batch_size=16", "--model.init_args.utd=1"]
STRONG = ["--model.init_args.regularizer.init_args.coef_rr=0.1", "--model.init_args.regularizer.init_args.coef_var=0.1"]
SYNCED = [*STRONG, "--model.init_args.regularizer.init_args.sync_batch=true"]
TD7 = ["--model.init_args.regularizer=null"]


def difference(tmp_path: Path, options: list[str]) -> tuple[float, dict, dict, dict[str, torch.Tensor]]:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, metrics_of_one = trained(tmp_path / "one", [*SHORT, *options, *ONE], 1)
    two, metrics_of_two = trained(tmp_path / "two", [*SHORT, *options, *TWO], 2)
    worst = max(float((one[name] - two[name]).abs().max()) for name in one)
    return worst, metrics_of_one, metrics_of_two, one


@pytest.mark.parametrize("options", [TD7, SYNCED], ids=["td7", "r2r2"])
def test_two_ranks_equal_one_process_on_the_pooled_batch(tmp_path: Path, options: list[str]):
    worst, one, two, weights = difference(tmp_path, options)
    assert worst < 1e-6
    assert one == pytest.approx(two, rel=1e-4)
    assert weights["target_low"] < 0 < weights["target_high"]


def test_without_sharing_the_batch_redundancy_is_that_of_each_rank(tmp_path: Path):
    worst, *_ = difference(tmp_path, STRONG)
    assert worst > 1e-5
