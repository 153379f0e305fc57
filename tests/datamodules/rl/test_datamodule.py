"""What an agent gets from its data module, without an agent."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Trainer

from datamodules.rl.datamodule import RLDataModule
from datamodules.rl.observation_normaliser import ObservationNormaliser

COUNTER = "mod:toy_envs:Counter"
SIZES: dict[str, Any] = {
    "total_env_steps": 60,
    "eval_every_env_steps": 20,
    "learning_starts": 8,
    "replay_capacity": 50,
    "train_freq": 2,
    "num_envs": 2,
    "eval_episodes": 3,
    "test_episodes": 2,
}


def ready(env: str = COUNTER, **options: Any) -> RLDataModule:
    data = RLDataModule(env, **{**SIZES, **options})
    data.setup("fit")
    return data


def zeros(obs: torch.Tensor) -> torch.Tensor:
    return torch.zeros(len(obs), 2)


def test_a_tick_counts_the_decisions_that_updates_are_due_for():
    data = ready()
    assert [data.collect(zeros) for _ in range(4)] == [0, 0, 4, 4]
    assert (data.env_steps, data.collector.replay.size) == (16, 16)


def test_episodes_that_ended_in_the_last_tick_are_known():
    data = ready(train_freq=3, eval_every_env_steps=60)
    ended = []
    for _ in range(4):
        data.collect(zeros)
        ended.append(data.ended_episodes())
    # seeds 0 and 1 have episodes of three and of four steps with the rewards 1, 2, 3, ...
    assert ended[0] == [(6.0, 3)]
    assert sum(len(tick) for tick in ended) == 7
    assert {episode for tick in ended for episode in tick} == {(6.0, 3), (10.0, 4)}
    assert sorted(data.episode_returns()) == [6.0] * 4 + [10.0] * 3


def test_the_newest_observations_are_taken_across_the_seam():
    data = ready(num_envs=1, replay_capacity=10, train_freq=13, eval_every_env_steps=52)
    data.collect(zeros)
    before = data.collector.replay.state_dict()["generator"]
    newest = data.newest_observations(5, torch.device("cpu"))
    # episodes of three steps: steps 8 to 12 show the counts 2, 0, 1, 2, 0
    assert newest[:, 2].tolist() == [2, 0, 1, 2, 0]
    assert len(data.newest_observations(50, torch.device("cpu"))) == 10
    assert torch.equal(before, data.collector.replay.state_dict()["generator"])


def test_priorities_reach_the_replay():
    data = ready(prioritised=True)
    for _ in range(5):
        data.collect(zeros)
    drawn = data.sample(20, torch.device("cpu"))["index"]
    data.update_priorities(torch.arange(20), torch.full((20,), 1e-9))
    data.update_priorities(drawn[:1], torch.tensor([5.0]))
    assert set(data.sample(50, torch.device("cpu"))["index"].tolist()) == {int(drawn[0])}
    assert data.collector.replay.max_priority == 5.0
    data.update_priorities(drawn[:1], torch.tensor([2.0]))
    data.reset_max_priority()
    assert data.collector.replay.max_priority == 2.0


def test_evaluation_episodes_have_their_own_seeds_and_end_one_by_one():
    data = RLDataModule(COUNTER, **SIZES)
    outcomes = data.evaluate(zeros, torch.tensor([0, 1, 2]))
    # seeds 10**6 + (0, 1, 2) leave the remainders 1, 2, 0, that is 4, 5 and 3 steps; rewards are 1, 2, 3, ...
    assert outcomes.lengths.tolist() == [4, 5, 3]
    assert outcomes.returns.tolist() == [10, 15, 6]


def test_only_episodes_still_going_are_asked_for_actions():
    asked = []
    data = RLDataModule(COUNTER, **SIZES)
    data.evaluate(lambda obs: asked.append(len(obs)) or zeros(obs), torch.tensor([0, 1, 2]))
    assert asked == [3, 3, 3, 2, 1]


def test_statistics_are_those_of_what_the_policy_saw():
    data = ready(normalise_observations=True, merge_every_ticks=1)
    for _ in range(6):
        data.collect(zeros)
    replay = data.collector.replay
    seen = replay.fields["obs"][: replay.size].double()
    mean, std = seen.mean(0), (seen.var(0, correction=0) + 1e-8).sqrt()
    assert data.normaliser is not None
    torch.testing.assert_close(data.normaliser.shared.mean, mean, rtol=1e-12, atol=0)
    batch = data.sample(30, torch.device("cpu"))
    for name in ("obs", "next_obs"):
        raw = replay.fields[name][batch["index"]]
        torch.testing.assert_close(batch[name], ((raw - mean) / std).float(), rtol=1e-4, atol=1e-4)


def test_policies_see_normalised_observations_in_training_and_in_evaluation():
    data = ready(normalise_observations=True, merge_every_ticks=1)
    for _ in range(3):
        data.collect(zeros)
    assert data.normaliser is not None
    raw, shown = data.collector.obs.clone(), []
    expected = data.normaliser(raw)
    data.collect(lambda obs: shown.append(obs.clone()) or zeros(obs))
    assert torch.equal(shown[0], expected)
    assert not torch.equal(expected, raw)
    seen = []
    data.evaluate(lambda obs: seen.append(obs.clone()) or zeros(obs), torch.tensor([0]))
    assert torch.equal(seen[0], data.normaliser(torch.tensor([[1e6, 1.0, 0.0]])))


def test_rewards_are_shown_in_units_of_returns():
    data = ready(scale_rewards=True, time_limit=100, merge_every_ticks=1)
    for _ in range(5):
        data.collect(zeros)
    assert data.scaler is not None
    batch = data.sample(30, torch.device("cpu"))
    raw = data.collector.replay.fields["reward"][batch["index"]]
    torch.testing.assert_close(batch["reward"], raw / data.scaler.scale)
    assert data.scaler.scale > 1.5
    resumed = ready(scale_rewards=True, time_limit=100, merge_every_ticks=1)
    resumed.load_state_dict(data.state_dict())
    resumed.load_rank_state_dict(data.rank_state_dict())
    assert resumed.scaler is not None
    assert resumed.scaler.scale == data.scaler.scale
    assert torch.equal(resumed.scaler.returns, data.scaler.returns)
    assert data.scaler.returns.abs().max() > 0


def test_rewards_are_scaled_where_episodes_have_a_known_length():
    with pytest.raises(ValueError, match="scale_rewards=true needs to know how long an episode of mod:toy_envs:Counter is"):
        ready(scale_rewards=True)


def test_between_two_merges_the_statistics_stand_still():
    data = ready(normalise_observations=True, merge_every_ticks=3)
    counts = []
    for _ in range(7):
        data.collect(zeros)
        assert data.normaliser is not None
        counts.append(data.normaliser.shared.count)
    assert counts == [0, 0, 12, 12, 12, 24, 24]


def test_two_ranks_merged_are_one_stream(monkeypatch: pytest.MonkeyPatch):
    observed = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)) * 5 + 100
    first, second, whole = (ObservationNormaliser([3]) for _ in range(3))
    for part in observed.split(10):
        first.observe(part[:4])
        second.observe(part[4:])
        parts = [first.unmerged.state_dict(), second.unmerged.state_dict()]
        monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
        monkeypatch.setattr("torch.distributed.get_world_size", lambda: 2)
        monkeypatch.setattr("torch.distributed.all_gather_object", lambda out, _, parts=parts: out.__setitem__(slice(None), parts))
        first.merge_ranks()
        second.merge_ranks()
        assert torch.equal(first.shared.mean, second.shared.mean)
        assert torch.equal(first.shared.m2, second.shared.m2)
    monkeypatch.undo()
    whole.observe(observed)
    whole.merge_ranks()
    torch.testing.assert_close(first.shared.mean, whole.shared.mean, rtol=1e-10, atol=0)
    torch.testing.assert_close(first.shared.variance, whole.shared.variance, rtol=1e-10, atol=0)


def test_an_environment_without_snapshots_goes_on_with_new_episodes():
    data = ready(vectorization="sync")
    for _ in range(4):
        data.collect(zeros)
    replay = data.collector.replay
    ends = replay.fields["truncated"][: replay.size].clone()
    state = data.rank_state_dict()
    assert torch.equal(replay.fields["truncated"][: replay.size], ends), "the running replay stays as it is"
    resumed = ready(vectorization="sync")
    resumed.load_rank_state_dict(state)
    fields = resumed.collector.replay.fields
    assert (fields["truncated"] | fields["terminated"])[14:16].all(), "the newest transition of each environment ends its episode"
    assert torch.equal(fields["truncated"][:14], ends[:14])
    assert torch.equal(fields["obs"][:16], replay.fields["obs"][:16])
    seeds, episodes, counts = resumed.collector.obs.T.tolist()
    assert (episodes, counts) == ([1.0, 1.0], [0.0, 0.0])
    assert len({*seeds, 0.0, 1.0}) == 4, "other episodes than the run began with"
    again = ready(vectorization="sync")
    again.load_rank_state_dict(state)
    assert torch.equal(again.collector.obs, resumed.collector.obs)


def test_an_episode_that_ended_by_itself_is_not_called_truncated():
    data = ready(num_envs=1, train_freq=6, eval_every_env_steps=60)
    data.collect(zeros)  # two episodes of three steps, the first cut by the clock, the second terminated
    fields = data.rank_state_dict()["replay"]["fields"]
    assert (fields["terminated"][5], fields["truncated"][5]) == (True, False)
    assert (fields["terminated"][2], fields["truncated"][2]) == (False, True)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"max_epochs": 7}, "trainer.max_epochs=7 .* data.total_env_steps=60"),
        ({"max_steps": 100}, "trainer.max_steps=100 .* data.total_env_steps=60"),
        ({"overfit_batches": 2}, "overfit_batches has no meaning"),
        ({"limit_train_batches": 2}, "limit_train_batches=2 would cut an epoch of 5 ticks"),
        ({"limit_train_batches": 0.5}, "limit_train_batches=0.5 would cut an epoch of 5 ticks"),
    ],
)
def test_settings_of_the_trainer_that_make_no_sense_are_refused(settings: dict[str, Any], said: str):
    data = RLDataModule(COUNTER, **SIZES)
    data.trainer = Trainer(**{"max_epochs": 3, **settings}, logger=False, accelerator="cpu", enable_checkpointing=False)
    with pytest.raises(ValueError, match=said):
        data.setup("fit")


@pytest.mark.parametrize("settings", [{}, {"limit_train_batches": 5}, {"limit_val_batches": 1}])
def test_others_are_not(settings: dict[str, Any]):
    data = RLDataModule(COUNTER, **SIZES)
    data.trainer = Trainer(**{"max_epochs": 3, **settings}, logger=False, accelerator="cpu", enable_checkpointing=False)
    data.setup("fit")
    data.teardown("fit")


def test_impossible_numbers_are_refused():
    with pytest.raises(ValueError, match="num_envs=0 must be at least 1"):
        RLDataModule(COUNTER, **{**SIZES, "num_envs": 0})
    with pytest.raises(ValueError, match="eval_every_env_steps=90 exceeds total_env_steps=60"):
        RLDataModule(COUNTER, **{**SIZES, "eval_every_env_steps": 90})
    with pytest.raises(ValueError, match="eval_every_env_steps=22 must be a multiple of the 4 decisions of a tick"):
        ready(eval_every_env_steps=22).train_dataloader()


def test_a_missing_renderer_is_known_before_the_training():
    with pytest.raises(ValueError, match="Counter' cannot be drawn: .* unexpected keyword argument 'render_mode'"):
        RLDataModule(COUNTER, render=True)


def test_a_renderer_that_fails_is_known_before_the_training(monkeypatch: pytest.MonkeyPatch):
    def fail(self: Any) -> None:
        raise RuntimeError("no display")

    monkeypatch.setattr("gymnasium.envs.classic_control.PendulumEnv.render", fail)
    with pytest.raises(ValueError, match=r"data.render=true, but gym:Pendulum-v1 cannot be drawn here \(no display\)"):
        RLDataModule("gym:Pendulum-v1", render=True)


def test_pictures_are_kept_if_wanted():
    data = RLDataModule("gym:Pendulum-v1", **SIZES, time_limit=3, render=True)
    recording = data.record_episode(lambda obs: torch.zeros(1, 1), 4)
    assert [frame.shape for frame in recording.frames] == [(500, 500, 3)] * 3
    plain = RLDataModule("gym:Pendulum-v1", **SIZES, time_limit=3).record_episode(lambda obs: torch.zeros(1, 1), 4)
    assert plain.frames == []
    assert torch.equal(plain.obs, recording.obs)


def test_a_replay_may_lie_on_a_disk(tmp_path: Path):
    data, in_memory = ready(replay_folder=str(tmp_path)), ready()
    for _ in range(5):
        data.collect(zeros)
        in_memory.collect(zeros)
    one, other = (d.sample(40, torch.device("cpu")) for d in (data, in_memory))
    assert all(torch.equal(value, other[name]) for name, value in one.items())
