from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from datamodules.base import BatchKey
from datamodules.rl.environments import make_env
from datamodules.rl.transitions import FIELDS, TransitionDataModule, collect_transitions, read_transitions

ENV = "gym:Pendulum-v1"
SIZES: dict[str, Any] = {"transitions": 20, "val_transitions": 12, "test_transitions": 8, "batch_size": 4}


def arrays(count: int = 40) -> dict[str, np.ndarray]:
    draws = np.random.default_rng(0)
    shapes = {"obs": (3,), "action": (2,), "reward": (), "next_obs": (3,), "terminated": ()}
    return {name: draws.random((count, *shape)) for name, shape in shapes.items()} | {"terminated": np.arange(count) % 7 == 6}


def saved(folder: Path, **changed: Any) -> Path:
    file = folder / "mine.npz"
    np.savez(file, **{name: values for name, values in {**arrays(), **changed}.items() if values is not None})
    return file


def prepared(**settings: Any) -> TransitionDataModule:
    data = TransitionDataModule(**{**SIZES, **settings})
    data.prepare_data()
    data.setup("fit")
    return data


def test_an_action_is_held_and_led_where_it_says():
    found = collect_transitions(ENV, 210, hold=4, seed=3)
    assert [len(found[name]) for name in FIELDS] == [210] * 5
    assert (found["action"][:208].reshape(52, 4, 1) == found["action"][:208:4, None]).all()
    assert len(np.unique(found["action"])) == 53
    goes_on = (found["obs"][1:] == found["next_obs"][:-1]).all(axis=1)
    assert np.flatnonzero(~goes_on).tolist() == [199], "the time limit of 200 begins another episode"
    assert not found["terminated"].any()
    env = make_env(ENV)
    obs, _ = env.reset(seed=3)
    for step in range(8):
        assert np.array_equal(obs, found["obs"][step])
        obs, reward, *_ = env.step(found["action"][step])
        assert np.array_equal(obs, found["next_obs"][step])
        assert found["reward"][step] == np.float32(reward)


def test_ends_of_episodes_are_told():
    found = collect_transitions("gym:InvertedPendulum-v5", 60, hold=4, seed=0)
    ends = np.flatnonzero(found["terminated"])
    assert len(ends) > 2
    assert not (found["obs"][1:] == found["next_obs"][:-1]).all(axis=1)[ends[ends < 59]].any()


def test_splits_are_other_episodes_and_kept(tmp_path: Path):
    data = prepared(env=ENV, root=str(tmp_path))
    assert data.model_arguments() == {"obs_dim": 3, "action_dim": 1}
    sets = data.train_set, data.val_set, data.test_set
    assert [len(split) for split in sets] == [20, 12, 8]
    assert len({split.obs[0, 0].item() for split in sets}) == 3
    files = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.npz")}
    assert len(files) == 3
    again = prepared(env=ENV, root=str(tmp_path), seed=5)
    assert torch.equal(again.train_set.obs, data.train_set.obs)
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*") if file.is_file()} == files
    other = prepared(env=ENV, root=str(tmp_path), generator_seed=1)
    assert not torch.equal(other.train_set.obs, data.train_set.obs)


def test_a_damaged_file_is_made_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    data = prepared(env=ENV, root=str(tmp_path))
    file = next(tmp_path.rglob("*_20_*.npz"))
    file.write_bytes(file.read_bytes()[:200])
    assert torch.equal(prepared(env=ENV, root=str(tmp_path)).train_set.obs, data.train_set.obs)
    assert "made anew" in caplog.text


def test_batches_are_rows_of_the_set(tmp_path: Path):
    data = prepared(env=ENV, root=str(tmp_path))
    batches = list(data.train_dataloader())
    assert {name: list(values.shape) for name, values in batches[0].items()} == {
        "obs": [4, 3], "action": [4, 1], "reward": [4], "next_obs": [4, 3], "terminated": [4],
    }  # fmt: skip
    assert batches[0]["terminated"].dtype == torch.bool
    seen = torch.cat([batch["obs"] for batch in batches])
    assert not torch.equal(seen, data.train_set.obs)
    assert torch.equal(seen.sort(0).values, data.train_set.obs.sort(0).values)
    for batch in batches:
        row = (data.train_set.obs == batch["obs"][0]).all(1).nonzero()[0]
        assert torch.equal(data.train_set.next_obs[row], batch["next_obs"][:1])


def test_a_rank_gets_its_rows(tmp_path: Path):
    held = prepared(path=str(saved(tmp_path))).train_set
    key = BatchKey(epoch=0, batch=0, indices=np.array([5, 3, 9, 0]), rows=slice(1, None, 2))
    assert torch.equal(held[key]["obs"], held.obs[[3, 0]])


def test_a_file_is_cut_in_order(tmp_path: Path):
    data = prepared(path=str(saved(tmp_path)))
    whole = arrays()
    assert data.model_arguments() == {"obs_dim": 3, "action_dim": 2}
    for split, rows in ((data.train_set, slice(0, 20)), (data.val_set, slice(20, 32)), (data.test_set, slice(32, 40))):
        assert np.array_equal(split.obs, whole["obs"][rows].astype(np.float32))
        assert np.array_equal(split.terminated, whole["terminated"][rows])
    assert [file.name for file in tmp_path.iterdir()] == ["mine.npz"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"next_obs": None, "reward": None}, "lacks reward, next_obs"),
        ({"reward": np.full(40, np.nan)}, "reward in .* holds NaN"),
        ({"action": np.zeros((39, 2))}, r"action in .* has shape \[39, 2\]"),
        ({"reward": np.zeros((40, 1))}, r"reward in .* should be \[N\]"),
        ({"next_obs": np.zeros((40, 4))}, r"shapes \[40, 3\] and \[40, 4\]"),
        ({"obs": np.full((40, 3), "a")}, "not numbers"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, changed: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        read_transitions(saved(tmp_path, **changed))


def test_other_bad_input_is_refused(tmp_path: Path):
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(ValueError, match="no readable .npz"):
        TransitionDataModule(path=str(tmp_path / "text.npz"))
    with pytest.raises(ValueError, match="only 40 transitions, too few for 2000 for train"):
        TransitionDataModule(path=str(saved(tmp_path)))
    with pytest.raises(FileNotFoundError, match="nowhere.npz"):
        TransitionDataModule(path="nowhere.npz")
    with pytest.raises(ValueError, match="either `env` or `path`"):
        TransitionDataModule()
    with pytest.raises(ValueError, match="hold=0"):
        TransitionDataModule(env=ENV, hold=0)
