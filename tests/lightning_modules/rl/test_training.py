"""Soft actor-critic on the common trainer: counters, evaluation, and a killed run that goes on as if it had not been."""

import csv
from pathlib import Path

import pytest
import torch
from processes import launch
from resumption import assert_same_run, folder_of, killed_and_continued, shards, state, undisturbed
from short_runs import CONFIGS

PENDULUM = [
    *("--config", CONFIGS / "sac/pendulum.yaml"),
    *("--data.init_args.total_env_steps=192", "--data.init_args.eval_every_env_steps=96", "--data.init_args.learning_starts=40"),
    *("--data.init_args.num_envs=2", "--data.init_args.time_limit=30", "--data.init_args.replay_capacity=150"),
    *("--data.init_args.eval_episodes=2", "--data.init_args.test_episodes=1"),
    *("--model.init_args.hidden=[8]", "--model.init_args.batch_size=16", "--model.init_args.log_every_updates=8"),
    "--resume.every_n_steps=16",
]
"""A tick is 8 decisions; the first 5 are random; each later one is followed by 8 updates, that is 16 optimiser steps."""


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return undisturbed(tmp_path_factory.mktemp("undisturbed"), PENDULUM, 1)


def test_what_a_run_leaves(reference: Path):
    with (reference / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows if row["val/return_mean"]] == [96, 192]
    updates = {int(row["step"]): float(row["train/updates"]) for row in rows if row["train/updates"]}
    assert updates == {steps: steps - 40 for steps in range(48, 193, 8)}
    (shard,) = shards(reference).values()
    assert (shard["replay"]["written"], shard["collector"]["decisions"]) == (192, 192)
    assert len(shard["environments"]["environments"]) == 2


KILLS = ["0 batch_end", "100 before_optimizer_step", "112 validation_end", "128 batch_start", "80 save_checkpoint"]


@pytest.mark.parametrize("kill", KILLS)
def test_a_killed_run_goes_on(tmp_path: Path, reference: Path, kill: str):
    assert_same_run(killed_and_continued(tmp_path, PENDULUM, 1, kill), reference)


def test_a_resumed_run_is_killed_again(tmp_path: Path, reference: Path):
    killed_and_continued(tmp_path, PENDULUM, 1, "48 batch_end", "264 before_optimizer_step")
    assert_same_run(folder_of(tmp_path), reference)


PHYSICS = {
    "Hopper": ["--config", CONFIGS / "sac/hopper.yaml", *PENDULUM[2:], "--data.init_args.num_envs=1"],
    "Hopper, two normalised": [
        *("--config", CONFIGS / "sac/hopper.yaml", *PENDULUM[2:]),
        *("--data.init_args.normalise_observations=true", "--data.init_args.merge_every_ticks=3"),
    ],
    "finger": ["--config", CONFIGS / "sac/finger_spin.yaml", *PENDULUM[2:], "--data.init_args.num_envs=1"],
    "finger, two": ["--config", CONFIGS / "sac/finger_spin.yaml", *PENDULUM[2:]],
}


@pytest.mark.parametrize("task", PHYSICS)
def test_physics_goes_on_exactly(tmp_path: Path, task: str):
    (tmp_path / "killed").mkdir()
    one = undisturbed(tmp_path, PHYSICS[task], 1)
    other = killed_and_continued(tmp_path / "killed", PHYSICS[task], 1, "48 batch_end", "129 before_optimizer_step")
    assert_same_run(other, one)
    assert state(one)["global_step"] > 300


def test_evaluating_more_often_changes_nothing_in_training(tmp_path: Path, reference: Path):
    words = [*PENDULUM, "--data.init_args.eval_every_env_steps=48"]
    often = undisturbed(tmp_path, words, 1)
    one, other = (torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True) for folder in (reference, often))
    assert all(torch.equal(value, other["state_dict"][name]) for name, value in one["state_dict"].items())


def test_a_checkpoint_without_its_shards_is_refused(tmp_path: Path):
    (killed,) = launch(
        [*PENDULUM, '--trainer.callbacks+={"class_path": "toy.KillAt"}'], tmp_path, env={"KILL_AT": "112 batch_start"}
    )
    folder = tmp_path / "runs" / "sac" / "pendulum" / "0"
    for shard in (folder / "checkpoints" / "shards").glob("*/*"):
        shard.unlink()
    (refused,) = launch([*PENDULUM[:2], "--resume"], tmp_path)
    assert refused.status == 2, refused
    assert "is missing or empty: the checkpoint needs it" in refused.output


ON_TWO_RANKS = [
    *(*PENDULUM, "--config", CONFIGS / "overlays/ddp.yaml", "--data.init_args.num_envs=1", "--data.init_args.test_episodes=2"),
    '--trainer.callbacks+={"class_path": "toy.KeepWeights"}',
]


def test_two_ranks_share_weights_and_nothing_else_and_go_on(tmp_path: Path):
    folder = undisturbed(tmp_path, ON_TWO_RANKS, 2)
    first, second = shards(folder).values()
    assert not torch.equal(first["replay"]["fields"]["obs"], second["replay"]["fields"]["obs"])
    assert first["collector"]["decisions"] == second["collector"]["decisions"] == 96
    weights = [torch.load(tmp_path / f"weights_{rank}.pt", weights_only=True) for rank in range(2)]
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
    for kill in ("100 before_optimizer_step", "40 save_checkpoint"):
        (tmp_path / kill).mkdir()
        assert_same_run(killed_and_continued(tmp_path / kill, ON_TWO_RANKS, 2, kill), folder)
