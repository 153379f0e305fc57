import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from datamodules.rl import replay as replay_module
from datamodules.rl.replay import ReplayBuffer

Step = dict[str, Any]


class FakeEnvs:
    """Environments whose observation is (environment, episode, time): a transition can be recognised, its future is known.

    Episodes of environment e last 1 to 6 steps and end terminated or truncated, sometimes both; next_obs is the final observation.
    """

    def __init__(self, n_envs: int, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.n_envs = n_envs
        self.clock = [(0, 0)] * n_envs
        self.history: list[list[Step]] = [[] for _ in range(n_envs)]

    def step(self) -> dict[str, torch.Tensor]:
        steps = [self._step(env) for env in range(self.n_envs)]
        return {name: torch.tensor([step[name] for step in steps]) for name in steps[0]}

    def _step(self, env: int) -> Step:
        episode, t = self.clock[env]
        over = t == 5 or self.random.random() < 0.25
        kind = self.random.integers(3) if over else -1
        step = {
            "obs": [float(env), float(episode), float(t)],
            "action": [float(self.random.normal())],
            "reward": float(self.random.normal()),
            "next_obs": [float(env), float(episode), float(t + 1)],
            "terminated": kind in (0, 2),
            "truncated": kind in (1, 2),
        }
        self.history[env].append(step)
        self.clock[env] = (episode + 1, 0) if over else (episode, t + 1)
        return step

    def newest(self, count: int) -> list[Step]:
        """The newest transitions, oldest first."""
        return [step for steps in zip(*self.history, strict=True) for step in steps][-count:]

    def future(self, obs: list[float]) -> Iterator[Step]:
        """Yield what followed from the transition with this observation until its episode ended or history does."""
        history = self.history[int(obs[0])]
        start = next(place for place, step in enumerate(history) if step["obs"] == obs)
        for step in history[start:]:
            yield step
            if step["terminated"] or step["truncated"]:
                return


def make(capacity: int, n_envs: int = 1, **options: Any) -> ReplayBuffer:
    return ReplayBuffer(capacity, (3,), 1, n_envs=n_envs, **options)


def played(capacity: int, n_envs: int, steps: int, **options: Any) -> tuple[ReplayBuffer, FakeEnvs]:
    replay, envs = make(capacity, n_envs, **options), FakeEnvs(n_envs)
    for _ in range(steps):
        replay.add(envs.step())
    return replay, envs


def rows(batch: dict[str, torch.Tensor]) -> list[Step]:
    lists = {name: value.tolist() for name, value in batch.items()}
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]


# not yet full; just full; wrapped; wrapped in the middle of a vector step; one environment
RINGS = [(60, 3, 7), (60, 3, 20), (60, 3, 33), (61, 3, 33), (59, 3, 40), (5, 3, 9), (40, 1, 95), (64, 4, 1)]


@pytest.mark.parametrize(("capacity", "n_envs", "steps"), RINGS)
def test_holds_the_newest_transitions_as_they_were(capacity: int, n_envs: int, steps: int):
    replay, envs = played(capacity, n_envs, steps)
    expected = {tuple(step["obs"]): step for step in envs.newest(capacity)}
    assert len(replay) == replay.size == len(expected) == min(capacity, n_envs * steps)
    seen = set()
    for _ in range(60):
        for row in rows(replay.sample(min(capacity, 40))):
            step = expected[tuple(row["obs"])]
            assert row["env_id"] == step["obs"][0]
            assert row["next_obs"] == [row["obs"][0], row["obs"][1], row["obs"][2] + 1], "a pair that crosses an episode"
            assert (row["terminated"], row["truncated"]) == (step["terminated"], step["truncated"])
            assert row["reward"] == pytest.approx(step["reward"], abs=1e-7)
            assert row["action"] == pytest.approx(step["action"], abs=1e-7)
            seen.add(tuple(row["obs"]))
    assert seen == expected.keys()


def test_n_step_returns_by_hand():
    # one environment, gamma 1/2: r = 1 2 4 | 8 16 | 32 with a termination after 4, a truncation after 16; 32 is the newest
    replay = make(8)
    for t, reward in enumerate([1.0, 2.0, 4.0, 8.0, 16.0, 32.0]):
        flags = {"terminated": torch.tensor([t == 2]), "truncated": torch.tensor([t == 4])}
        obs = torch.full((1, 3), float(t))
        replay.add({"obs": obs, "action": torch.zeros(1, 1), "reward": torch.tensor([reward]), "next_obs": obs + 0.5, **flags})
    found = {
        row["obs"][0]: (row["reward"], row["discount"], row["next_obs"][0], row["terminated"])
        for _ in range(20)
        for row in rows(replay.sample(8, n_step=3, gamma=0.5))
    }
    assert found == {
        0.0: (1 + 1 + 1, 0.125, 2.5, True),
        1.0: (2 + 2, 0.25, 2.5, True),
        2.0: (4, 0.5, 2.5, True),
        3.0: (8 + 8, 0.25, 4.5, False),
        4.0: (16, 0.5, 4.5, False),
        5.0: (32, 0.5, 5.5, False),
    }


@pytest.mark.parametrize("n_step", [1, 2, 3, 10])
@pytest.mark.parametrize(("capacity", "n_envs", "steps"), RINGS)
def test_n_step_returns_are_those_of_a_loop(capacity: int, n_envs: int, steps: int, n_step: int):
    gamma = 0.9
    replay, envs = played(capacity, n_envs, steps)
    seen, lengths = set(), set()
    for _ in range(60):
        for row in rows(replay.sample(min(capacity, 40), n_step=n_step, gamma=gamma)):
            total, discount = 0.0, 1.0
            for length, step in enumerate(envs.future(row["obs"]), start=1):
                total += discount * step["reward"]
                discount *= gamma
                if length == n_step:
                    break
            assert row["reward"] == pytest.approx(total, abs=1e-5)
            assert row["discount"] == pytest.approx(discount, rel=1e-6)
            assert row["next_obs"] == step["next_obs"]
            assert (row["terminated"], row["truncated"]) == (step["terminated"], step["truncated"])
            seen.add(tuple(row["obs"]))
            lengths.add(length)
    assert len(seen) == len(replay)
    assert n_step == 1 or len(seen) < 10 or len(lengths) > 1, "whole and cut windows both occurred"


def test_several_steps_may_be_added_at_once():
    envs = FakeEnvs(3)
    batches = [envs.step() for _ in range(25)]
    single, bulk = make(32, 3), make(32, 3)
    for batch in batches:
        single.add(batch)
    for first, last in [(0, 4), (4, 13), (13, 14), (14, 24), (24, 25)]:
        bulk.add({name: torch.cat([batch[name] for batch in batches[first:last]]).numpy() for name in batches[0]})
    for name, field in single.fields.items():
        assert field.equal(bulk.fields[name]), name
    assert single.written == bulk.written == 75


def test_uniform_frequencies():
    replay, _ = played(50, 1, 80)
    counts = torch.stack([replay.sample(50)["index"] for _ in range(2_000)]).flatten().bincount(minlength=50)
    assert chisquare(counts).pvalue > 1e-3
    replay, _ = played(50, 1, 20)
    counts = torch.stack([replay.sample(50)["index"] for _ in range(400)]).flatten().bincount(minlength=50)
    assert counts[20:].sum() == 0
    assert chisquare(counts[:20]).pvalue > 1e-3


@pytest.mark.parametrize("limit", [replay_module.CUMULATIVE_SUM_LIMIT, 0])
def test_prioritised_frequencies(limit: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(replay_module, "CUMULATIVE_SUM_LIMIT", limit)
    replay, _ = played(60, 2, 45, prioritised=True)
    priorities = torch.rand(60, generator=torch.Generator().manual_seed(1)) + 0.1
    replay.update_priorities(torch.arange(60), priorities)
    samples = [replay.sample(60) for _ in range(2_000)]
    index = torch.cat([sample["index"] for sample in samples])
    expected = (priorities / priorities.sum()).double()
    assert chisquare(index.bincount(minlength=60), expected / expected.sum() * len(index)).pvalue > 1e-3
    torch.testing.assert_close(torch.cat([sample["probability"] for sample in samples]), expected[index].float())
    for sample in samples[:20]:
        assert sample["obs"].equal(replay.fields["obs"][sample["index"]])


def test_new_transitions_get_the_largest_priority():
    replay, envs = played(8, 1, 4, prioritised=True)

    def priorities() -> list[float]:
        return replay.state_dict()["priorities"].tolist()

    assert priorities() == [1, 1, 1, 1]
    replay.update_priorities(torch.tensor([0, 1, 2, 2]), torch.tensor([0.5, 4.0, 2.0, 3.0]))
    replay.add(envs.step())
    assert priorities() == [0.5, 4, 3, 1, 4]
    replay.update_priorities(torch.tensor([1, 4]), torch.tensor([2.0, 2.5]))
    assert replay.max_priority == 4.0
    replay.reset_max_priority()
    assert replay.max_priority == 3.0
    for _ in range(4):
        replay.add(envs.step())
    assert priorities() == [3, 2, 3, 1, 2.5, 3, 3, 3]


@pytest.mark.parametrize("options", [{}, {"prioritised": True}])
@pytest.mark.parametrize("tree", [False, True])
@pytest.mark.parametrize("steps", [9, 50])
def test_a_restored_replay_goes_on_bit_for_bit(options: dict[str, bool], tree: bool, steps: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(replay_module, "CUMULATIVE_SUM_LIMIT", 0 if tree else 1000)
    whole, envs = played(61, 2, steps, **options)
    if options:
        for seed in range(5):
            index = whole.sample(20)["index"]
            whole.update_priorities(index, torch.rand(20, generator=torch.Generator().manual_seed(seed)).pow(3) + 0.01)
        whole.update_priorities(index[:1], torch.tensor([7.0]))
    file = io.BytesIO()
    torch.save(whole.state_dict(), file)
    file.seek(0)
    restored = make(61, 2, seed=99, **options)
    restored.load_state_dict(torch.load(file, weights_only=True))
    for _ in range(40):
        batch = envs.step()
        torch.rand(3)
        one, other = (replay.sample(16, n_step=3, gamma=0.9) for replay in (whole, restored))
        for name in one:
            assert one[name].equal(other[name]), name
        for replay in (whole, restored):
            if options:
                replay.update_priorities(one["index"], one["reward"].abs() + 0.1)
            replay.add(batch)
    assert whole.max_priority == restored.max_priority
    assert whole.written == restored.written


def test_a_state_is_a_copy_cut_to_what_is_held():
    replay, envs = played(1000, 2, 3, prioritised=True)
    state = replay.state_dict()
    assert {len(field) for field in state["fields"].values()} == {6}
    assert all(field.untyped_storage().nbytes() == field.nbytes for field in state["fields"].values())
    assert len(state["priorities"]) == 6
    before = {name: field.clone() for name, field in state["fields"].items()}
    for _ in range(1000):
        replay.add(envs.step())
    assert all(field.equal(before[name]) for name, field in state["fields"].items())
    # a replay that held more goes back to what it held
    replay.load_state_dict(state)
    assert len(replay) == 6
    assert (replay.sample(500)["index"] < 6).all()
    assert replay.sample(1)["probability"].item() == pytest.approx(1 / 6)


def test_global_random_numbers_do_not_matter():
    one, _ = played(50, 1, 40, seed=5)
    other, _ = played(50, 1, 40, seed=5)
    third, _ = played(50, 1, 40, seed=6)
    torch.manual_seed(0)
    first = one.sample(20)["index"]
    state = torch.get_rng_state()
    torch.manual_seed(1)
    assert other.sample(20)["index"].equal(first)
    assert not third.sample(20)["index"].equal(first)
    torch.manual_seed(0)
    assert torch.get_rng_state().equal(state), "sampling consumed global random numbers"


def test_images_stay_bytes():
    replay = ReplayBuffer(4, (3, 8, 8), 2, observation_dtype=torch.uint8)
    image = torch.arange(192, dtype=torch.uint8).view(1, 3, 8, 8)
    flags = {"reward": np.zeros(1), "terminated": np.zeros(1, bool), "truncated": np.zeros(1, bool)}
    replay.add({"obs": image, "next_obs": image.flip(1), "action": np.zeros((1, 2)), **flags})
    batch = replay.sample(2)
    assert batch["obs"].dtype == batch["next_obs"].dtype == torch.uint8
    assert batch["obs"][1].equal(image[0])
    assert batch["next_obs"][1].equal(image[0].flip(0))
    assert batch["action"].dtype == batch["reward"].dtype == torch.float32
    with pytest.raises(ValueError, match=r"stores obs as uint8 \[3, 8, 8\], but 1 rows of it came as torch.float32 \[1, 3, 8, 8\]"):
        replay.add({"obs": image.float(), "next_obs": image, "action": np.zeros((1, 2)), **flags})


def test_a_sample_goes_to_the_device():
    replay, _ = played(50, 1, 40, prioritised=True)
    batch = replay.sample(20, device="meta", n_step=2, gamma=0.9)
    assert {name for name, value in batch.items() if value.device.type != "meta"} == {"index"}
    assert batch.keys() == {*replay.fields, "env_id", "index", "discount", "probability"}
    assert replay.sample(20).keys() == {*replay.fields, "env_id", "index", "probability"}


def test_files_hold_what_memory_holds_and_vanish(tmp_path: Path):
    memory, _ = played(20, 2, 30)
    files, _ = played(20, 2, 30, folder=tmp_path)
    for _ in range(3):
        one, other = memory.sample(10), files.sample(10)
        assert all(one[name].equal(other[name]) for name in one)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["reward", "obs", "next_obs", "action"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_not_finite_name_the_environment(name: str, value: float):
    replay, envs = played(50, 3, 4)
    batch = envs.step()
    batch[name][1] = value
    with pytest.raises(FloatingPointError, match=f"^{name} of environment 1 is not finite at its step 4: .* has diverged$"):
        replay.add(batch)
    assert replay.written == 12


def test_what_cannot_be_stored_or_sampled_is_refused():
    replay, batch = make(6, 2), FakeEnvs(2).step()
    with pytest.raises(ValueError, match="empty"):
        replay.sample(4)
    replay.add(batch)
    with pytest.raises(ValueError, match="batch_size 7 exceeds the replay's capacity 6"):
        replay.sample(7)
    with pytest.raises(ValueError, match="discount gamma"):
        replay.sample(4, n_step=3)
    with pytest.raises(ValueError, match="n_step >= 1"):
        replay.sample(4, n_step=0, gamma=0.9)
    with pytest.raises(ValueError, match="prioritised=True"):
        replay.update_priorities(torch.tensor([0]), torch.tensor([1.0]))
    with pytest.raises(ValueError, match="stores the fields obs, .*; it was given obs"):
        replay.add({"obs": batch["obs"]})
    with pytest.raises(ValueError, match="cannot add 1 rows"):
        replay.add({name: value[:1] for name, value in batch.items()})
    with pytest.raises(ValueError, match="cannot add 8 rows"):
        replay.add({name: torch.cat([value] * 4) for name, value in batch.items()})
    with pytest.raises(ValueError, match="stores terminated as bool"):
        replay.add({**batch, "terminated": torch.zeros(2)})
    with pytest.raises(ValueError, match=r"stores reward as float32 \[\]"):
        replay.add({**batch, "reward": torch.zeros(2, 1)})
    with pytest.raises(ValueError, match="one step of 3 environments"):
        make(2, 3)
    assert len(replay) == 2


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_priorities_that_mean_nothing_are_refused(bad: float):
    replay, _ = played(6, 2, 1, prioritised=True)
    with pytest.raises(FloatingPointError, match="positive and finite"):
        replay.update_priorities(torch.tensor([0, 1]), torch.tensor([1.0, bad]))
    with pytest.raises(ValueError, match="transitions 0 to 1"):
        replay.update_priorities(torch.tensor([2]), torch.tensor([1.0]))
    assert replay.state_dict()["priorities"].tolist() == [1, 1]


def test_another_replay_is_refused_in_one_message():
    replay, _ = played(6, 2, 5)
    other = ReplayBuffer(8, (4,), 1, n_envs=2, prioritised=True)
    with pytest.raises(ValueError, match="^the saved replay has capacity 6 instead of 8, .*: resume with") as caught:
        other.load_state_dict(replay.state_dict())
    assert "sampling uniform instead of by priority" in str(caught.value)
    assert r"obs float32 [3] instead of float32 [4]" in str(caught.value)
    assert "n_envs" not in str(caught.value)
    assert "action" not in str(caught.value)
    assert len(other) == 0
