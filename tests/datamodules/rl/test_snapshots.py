import copy
import io
import os
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import mujoco
import numpy as np
import pytest
import torch

from datamodules.rl import snapshots
from datamodules.rl.environments import make_env, make_vector_env
from datamodules.rl.snapshots import get_snapshot, register_snapshot, set_snapshot, supports

STEPS = 80
EXACT = [
    "gym:Pendulum-v1",
    "gym:MountainCarContinuous-v0",
    "gym:InvertedPendulum-v5",
    "gym:Hopper-v5",
    "gym:HalfCheetah-v5",
    "gym:Reacher-v5",
    "gym:Ant-v5",
    "gym:Humanoid-v5",
    "dmc:finger-spin",
    "dmc:cartpole-balance",
    "dmc:walker-walk",
    "dmc:reacher-hard",
    "dmc:hopper-hop",
]
NEW_PROCESS = """
import sys, torch
from datamodules.rl.environments import make_env
from datamodules.rl.snapshots import set_snapshot
from test_snapshots import play
saved = torch.load(sys.argv[1], weights_only=True)
played = []
for id, snapshot in saved.items():
    env = make_env(id, time_limit=50)
    set_snapshot(env, snapshot)
    played.append(torch.from_numpy(play(env, 80)))
torch.save(played, sys.argv[2])
"""


class Walk(gym.Env):
    """One number that moves by the action and by noise."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.normal(size=1)
        return self.place.astype(np.float32), {}

    def step(self, action):
        self.place = self.place + action + self.np_random.normal(size=1)
        return self.place.astype(np.float32), 0.0, False, False, {}


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch):
    """MuJoCo writes its warnings to MUJOCO_LOG.TXT in the current folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr(snapshots, "_registered", [])


def play(env: gym.Env, steps: int) -> np.ndarray:
    """Return everything that random actions bring, with resets where episodes end, float64 ``[steps, values]``."""
    rows = []
    for _ in range(steps):
        action = env.action_space.sample()
        observation, reward, terminated, truncated, _ = env.step(action)
        start = env.reset()[0] if terminated or truncated else observation
        rows.append(np.concatenate([action, observation, start, [reward, terminated, truncated]], dtype=np.float64))
    return np.array(rows)


def through_a_file(snapshot: dict) -> dict:
    file = io.BytesIO()
    torch.save(snapshot, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("id", EXACT)
def test_new_object_continues_bit_for_bit(id: str):
    env = make_env(id, seed=3, time_limit=50)
    assert supports(env)
    env.reset()
    play(env, 23)
    snapshot = through_a_file(get_snapshot(env))
    expected = play(env, STEPS)
    assert expected[:, -2:].any()  # an episode ends on the way
    assert len(np.unique(expected[:, 0])) == STEPS
    new = make_env(id, time_limit=50)  # never reset
    set_snapshot(new, snapshot)
    assert np.array_equal(play(new, STEPS), expected)
    set_snapshot(env, snapshot)
    assert np.array_equal(play(env, STEPS), expected)  # and an object with a past of its own


def test_taking_a_snapshot_changes_nothing():
    for id in ("gym:Ant-v5", "dmc:finger-spin"):
        played = []
        for looks in (False, True):
            env = make_env(id, seed=0)
            env.reset()
            rows = []
            for _ in range(10):
                rows.append(play(env, 1))
                if looks:
                    get_snapshot(env)
            played.append(np.concatenate(rows))
        assert np.array_equal(*played)


def test_new_process_continues_bit_for_bit(tmp_path: Path):
    saved, expected = {}, []
    for id in ("gym:Hopper-v5", "dmc:finger-spin"):
        env = make_env(id, seed=5, time_limit=50)
        env.reset()
        play(env, 31)
        saved[id] = get_snapshot(env)
        expected.append(play(env, STEPS))
    torch.save(saved, tmp_path / "saved.pt")
    root = Path(snapshots.__file__).parents[2]
    path = os.pathsep.join([str(root), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", NEW_PROCESS, str(tmp_path / "saved.pt"), str(tmp_path / "played.pt")]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": path}, timeout=120)
    played = torch.load(tmp_path / "played.pt", weights_only=True)
    assert all(np.array_equal(new.numpy(), old) for new, old in zip(played, expected, strict=True))


def test_ended_episode_stays_ended():
    env = make_env("dmc:cartpole-balance", action_repeat=1000)
    env.reset(seed=0)
    assert env.step(np.zeros(1, np.float32))[3]
    snapshot = get_snapshot(env)
    new = make_env("dmc:cartpole-balance", action_repeat=1000)
    set_snapshot(new, snapshot)
    assert new.unwrapped.dm_env._reset_next_step
    assert (new.reset()[0] == env.reset()[0]).all()


@pytest.mark.parametrize("id", ["gym:Pendulum-v1", "gym:Hopper-v5", "dmc:reacher-easy"])
def test_vector_continues_bit_for_bit(id: str):
    def advance(envs, steps: int) -> list:
        return [envs.step(envs.action_space.sample()) for _ in range(steps)]

    envs = make_vector_env(id, 2, seed=1, time_limit=30)
    assert supports(envs)
    envs.reset()
    advance(envs, 30)
    if id == "gym:Pendulum-v1":
        assert envs._autoreset_envs.all()
    snapshot = through_a_file(get_snapshot(envs))
    new = make_vector_env(id, 2, seed=77, time_limit=30)
    set_snapshot(new, snapshot)
    assert (new._observations == envs._observations).all()
    assert (new._autoreset_envs == envs._autoreset_envs).all()
    expected, played = advance(envs, STEPS), advance(new, STEPS)
    assert any((step[2] | step[3]).any() for step in expected)
    for one, two in zip(expected, played, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one[:4], two[:4], strict=True))
        assert ("final_obs" in one[4]) == ("final_obs" in two[4])
        if "final_obs" in one[4]:
            assert all(np.array_equal(a, b) for a, b in zip(one[4]["final_obs"], two[4]["final_obs"], strict=True))


def test_snapshot_is_a_copy():
    envs = make_vector_env("dmc:cartpole-balance", 2)
    envs.reset()
    snapshot = get_snapshot(envs)
    before = copy.deepcopy(snapshot)
    envs.step(envs.action_space.sample())
    assert (snapshot["arrays"]["_observations"] == before["arrays"]["_observations"]).all()
    assert (
        snapshot["environments"][0]["states"][-1]["integration"] == before["environments"][0]["states"][-1]["integration"]
    ).all()


def test_small_enough_for_every_checkpoint():
    def size(id: str) -> int:
        env = make_env(id, seed=0)
        env.reset()
        play(env, 20)
        file = io.BytesIO()
        torch.save(get_snapshot(env), file)
        return file.tell()

    assert size("gym:Humanoid-v5") < 120_000
    assert size("dmc:humanoid-run") < 20_000


def test_unknown_environments_are_refused(registry):
    env = make_env(f"mod:{__name__}:Walk")
    assert not supports(env)
    with pytest.raises(TypeError, match=r"unknown is Walk: see register_snapshot"):
        get_snapshot(env)
    counted = gym.wrappers.RecordEpisodeStatistics(make_env("gym:Pendulum-v1"))
    assert not supports(counted)
    with pytest.raises(TypeError, match="unknown is RecordEpisodeStatistics"):
        set_snapshot(counted, {})

    class Heavier(type(make_env("gym:Hopper-v5").unwrapped)):
        pass

    assert not supports(Heavier())
    assert not supports(gym.vector.SyncVectorEnv([Walk]))
    parallel = make_vector_env("gym:Pendulum-v1", 1, vectorization="async")
    assert not supports(parallel)
    with pytest.raises(TypeError, match="unknown is AsyncVectorEnv"):
        get_snapshot(parallel)
    parallel.close()


def test_registered_environment(registry):
    register_snapshot(
        lambda layer: isinstance(layer, Walk),
        lambda walk: {"place": walk.place},
        lambda walk, state: setattr(walk, "place", state["place"]),
    )
    env, new = make_env(f"mod:{__name__}:Walk", seed=1), make_env(f"mod:{__name__}:Walk", seed=2)
    env.reset()
    play(env, 5)
    set_snapshot(new, through_a_file(get_snapshot(env)))
    assert np.array_equal(play(new, STEPS), play(env, STEPS))
    register_snapshot(lambda layer: isinstance(layer, Walk), lambda walk: {"all": walk}, lambda walk, state: None)
    with pytest.raises(TypeError, match="not Walk"):
        get_snapshot(env)


def test_snapshot_of_another_is_refused(monkeypatch):
    def taken(id: str, **options) -> dict:
        env = make_env(id, seed=0, **options)
        env.reset()
        return get_snapshot(env)

    with pytest.raises(ValueError, match=r"snapshot is of .*HopperEnv, not of .*AntEnv"):
        set_snapshot(make_env("gym:Ant-v5"), taken("gym:Hopper-v5"))
    with pytest.raises(ValueError, match=r"snapshot is of dmc:finger-spin, not of dmc:finger-turn_easy"):
        set_snapshot(make_env("dmc:finger-turn_easy"), taken("dmc:finger-spin"))
    with pytest.raises(ValueError, match="snapshot is of a vector"):
        set_snapshot(make_env("gym:Pendulum-v1"), get_snapshot(make_vector_env("gym:Pendulum-v1", 2)))
    with pytest.raises(ValueError, match="of 2 environments, there are 3: set num_envs=2"):
        set_snapshot(make_vector_env("gym:Pendulum-v1", 3), get_snapshot(make_vector_env("gym:Pendulum-v1", 2)))
    for id in ("gym:Hopper-v5", "dmc:finger-spin"):
        snapshot = taken(id)
        with monkeypatch.context() as patch:
            patch.setattr(mujoco, "__version__", "3.1.0")
            with pytest.raises(ValueError, match=rf"taken with mujoco {mujoco.__version__}|installed is 3\.1\.0"):
                set_snapshot(make_env(id), snapshot)


def test_snapshot_of_another_model_or_damaged_bytes_are_refused():
    small, large = make_env("gym:InvertedPendulum-v5", seed=0), make_env("gym:Hopper-v5", seed=0)
    snapshot = get_snapshot(large)
    snapshot["states"][-1] = get_snapshot(small)["states"][-1]
    with pytest.raises(ValueError, match="snapshot is of another MuJoCo model"):
        set_snapshot(large, snapshot)
    damaged = bytearray(get_snapshot(large)["states"][-1]["data"])
    damaged[len(damaged) // 2] ^= 255
    snapshot["states"][-1]["data"] = bytes(damaged)
    with pytest.raises(ValueError, match="is damaged"):
        set_snapshot(large, snapshot)
