"""SimbaV2-SPL with R2R2 on the common trainer: a killed run goes on as if it had not been, and two ranks do what one does."""

from pathlib import Path

import pytest
import torch
from parity import trained
from resumption import assert_same_run, killed_and_continued, shards, state, undisturbed
from short_runs import CONFIGS

from lightning_modules.r2r2.simba_module import SimbaV2Module

TINY = [
    *("--model.init_args.actor_width=8", "--model.init_args.critic_width=8", "--model.init_args.num_critics=2"),
    *("--model.init_args.spl=true", "--model.init_args.latent_dim=6", "--model.init_args.model_width=8"),
    *("--model.init_args.batch_size=16", "--model.init_args.log_every_updates=8"),
]
PENDULUM = [
    *(
        "--config",
        CONFIGS / "r2r2/simba_pendulum.yaml",
        *TINY,
        "--model.init_args.regularizer=lightning_modules.RedundancyReduction",
    ),
    *("--data.init_args.total_env_steps=192", "--data.init_args.eval_every_env_steps=96", "--data.init_args.learning_starts=40"),
    *("--data.init_args.num_envs=2", "--data.init_args.time_limit=30", "--data.init_args.replay_capacity=150"),
    *("--data.init_args.eval_episodes=2", "--data.init_args.test_episodes=1", "--data.init_args.merge_every_ticks=3"),
    "--resume.every_n_steps=16",
]
"""A tick is 8 decisions; the first 5 are random; each later one is followed by 8 updates, that is 16 optimiser steps."""


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return undisturbed(tmp_path_factory.mktemp("undisturbed"), PENDULUM, 1)


@pytest.mark.parametrize("kill", ["48 batch_end", "129 before_optimizer_step", "80 save_checkpoint"])
def test_a_killed_run_goes_on(tmp_path: Path, reference: Path, kill: str):
    assert_same_run(killed_and_continued(tmp_path, PENDULUM, 1, kill), reference)


def test_what_a_run_leaves(reference: Path):
    checkpoint = state(reference)
    assert checkpoint["off_policy"]["updates"] == 192 - 40
    loaded = SimbaV2Module.load_from_checkpoint(reference / "checkpoints" / "last.ckpt", weights_only=True)
    assert loaded.regularizer.coef_rr == 0.01
    assert torch.equal(loaded.encoder.dense.weight, checkpoint["state_dict"]["encoder.dense.weight"])
    rates = [group["lr"] for optimizer in checkpoint["optimizer_states"] for group in optimizer["param_groups"]]
    progress = (192 - 40 - 1) / 192
    assert rates == pytest.approx([1e-3 - progress * 5e-4, 3e-4 + progress * 2e-4, 1e-3 - progress * 5e-4])
    (shard,) = shards(reference).values()
    assert shard["collector"]["decisions"] == 192


def test_two_ranks_equal_one_process_on_the_pooled_batch(tmp_path: Path):
    words = [
        *("--config", CONFIGS / "r2r2/simba_pendulum.yaml", "--config", CONFIGS / "overlays/ddp.yaml", *TINY),
        '--model.init_args.regularizer={"class_path": "lightning_modules.RedundancyReduction", "init_args": {"sync_batch": true}}',
        *("--model.init_args.lr=1e-4", "--model.init_args.encoder_lr=1e-4", "--model.init_args.final_lr=5e-5"),
        "--data.class_path=toy_experience.PooledReplay",
        *("--data.init_args.normalise_observations=false", "--data.init_args.scale_rewards=false"),
        *(
            "--data.init_args.total_env_steps=120",
            "--data.init_args.eval_every_env_steps=120",
            "--data.init_args.learning_starts=40",
        ),
        *("--data.init_args.time_limit=20", "--data.init_args.eval_episodes=3", "--data.init_args.test_episodes=5"),
        *('--trainer.callbacks=[{"class_path": "toy_experience.NoiseFromMeans"}]', "--consistency.every_n_batches=5"),
    ]
    one_process = [*words, "--data.init_args.num_envs=2", "--model.init_args.batch_size=32", "--model.init_args.utd=0.5"]
    two_processes = [*words, "--data.init_args.num_envs=1", "--model.init_args.batch_size=16"]
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, metrics_of_one = trained(tmp_path / "one", one_process, 1)
    two, metrics_of_two = trained(tmp_path / "two", two_processes, 2)
    worst = {name: float((one[name] - two[name]).abs().max()) for name in one}
    assert max(worst.values()) < 1e-6, worst
    assert metrics_of_one == pytest.approx(metrics_of_two, rel=1e-4)
