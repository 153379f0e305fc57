"""TD7 on the common trainer: counters, and a killed run that goes on as if it had not been."""

import csv
from pathlib import Path

import pytest
from processes import launch
from resumption import assert_same_run, killed_and_continued, shards, state, undisturbed
from short_runs import CONFIGS

PENDULUM = [
    *("--config", CONFIGS / "r2r2/td7_pendulum.yaml"),
    *("--data.init_args.total_env_steps=160", "--data.init_args.eval_every_env_steps=80", "--data.init_args.learning_starts=40"),
    *("--data.init_args.time_limit=15", "--data.init_args.replay_capacity=110"),
    *("--data.init_args.eval_episodes=2", "--data.init_args.test_episodes=1"),
    *("--model.init_args.latent_dim=6", "--model.init_args.hidden=8", "--model.init_args.batch_size=16"),
    *("--model.init_args.log_every_updates=8", "--model.init_args.utd=1.5", "--model.init_args.target_update_rate=20"),
    *("--model.init_args.steps_before_checkpointing=55", "--model.init_args.max_eps_when_checkpointing=2"),
    "--resume.every_n_steps=16",
]
"""Episodes of 15 decisions; the third, at 31 to 45, is the last that chance acts in."""
STEP_DRIVEN = [*PENDULUM, "--model.init_args.use_checkpoints=false", "--data.init_args.train_freq=4"]
LOGGED = [steps for steps in range(44, 161, 4) if 3 * (steps - 40) // 16 > 3 * (steps - 44) // 16]
RUNS = {"episodes": PENDULUM, "steps": STEP_DRIVEN}


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: undisturbed(tmp_path_factory.mktemp(name), words, 1) for name, words in RUNS.items()}


def rows(folder: Path) -> dict[int, float]:
    with (folder / "metrics.csv").open() as file:
        return {int(row["step"]): float(row["train/updates"]) for row in csv.DictReader(file) if row["train/updates"]}


def test_updates_follow_steps_or_judged_episodes(references: dict[str, Path]):
    assert rows(references["steps"]) == {steps: 1.5 * (steps - 40) for steps in LOGGED}
    by_episode = rows(references["episodes"])
    assert by_episode[60] == 30
    assert all(steps % 15 == 0 and updates == 3 * (steps - 40) // 2 for steps, updates in by_episode.items())
    saved = state(references["episodes"])
    assert saved["td7"]["assessment"]["episodes"] == 2
    assert saved["off_policy"]["updates"] + saved["td7"]["updates_owed"] == 180
    (shard,) = shards(references["episodes"]).values()
    assert (shard["replay"]["written"], shard["collector"]["decisions"]) == (160, 160)
    assert len(shard["replay"]["priorities"].unique()) > 3


KILLS = {
    "episodes": ["0 batch_end", "45 batch_start", "45 save_checkpoint", "100 before_optimizer_step", "150 before_optimizer_step"],
    "steps": ["0 batch_end", "63 batch_start", "54 save_checkpoint", "130 before_optimizer_step", "90 validation_end"],
}
"""Three optimiser steps for two updates; 45 of them at the first judged episode."""


@pytest.mark.parametrize(("name", "kill"), [(name, kill) for name, kills in KILLS.items() for kill in kills])
def test_a_killed_run_goes_on(tmp_path: Path, references: dict[str, Path], name: str, kill: str):
    assert_same_run(killed_and_continued(tmp_path, RUNS[name], 1, kill), references[name])


ON_TWO_RANKS = [*STEP_DRIVEN, "--config", CONFIGS / "overlays/ddp.yaml", "--data.init_args.test_episodes=2"]


def test_two_ranks_go_on(tmp_path: Path):
    for name in ("undisturbed", "killed"):
        (tmp_path / name).mkdir()
    folder = undisturbed(tmp_path / "undisturbed", ON_TWO_RANKS, 2)
    first, second = shards(folder).values()
    assert first["replay"]["max_priority"] != second["replay"]["max_priority"]
    assert_same_run(killed_and_continued(tmp_path / "killed", ON_TWO_RANKS, 2, "70 before_optimizer_step"), folder)


REFUSALS = {
    "data.prioritised=true": [*PENDULUM, "--data.init_args.prioritised=false"],
    "data.train_freq=4": [*PENDULUM, "--data.init_args.train_freq=4"],
    "data.num_envs=2": [*PENDULUM, "--data.init_args.num_envs=2"],
}


@pytest.mark.parametrize("message", REFUSALS)
def test_data_that_do_not_fit_are_refused(tmp_path: Path, message: str):
    (refused,) = launch([*REFUSALS[message], "--trainer.accelerator=cpu"], tmp_path)
    assert refused.status == 2, refused.output
    assert message in refused.output


def test_episodes_are_not_assessed_by_several_ranks(tmp_path: Path):
    words = [*PENDULUM, "--config", CONFIGS / "overlays/ddp.yaml", "--trainer.devices=2", "--trainer.accelerator=cpu"]
    refused = launch(words, tmp_path, 2)
    assert [p.status for p in refused] == [2, 2]
    assert "2 processes" in refused[0].output
    assert "model.use_checkpoints=false" in refused[0].output
