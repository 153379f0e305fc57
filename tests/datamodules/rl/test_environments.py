import importlib.metadata
import os
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from toy_envs import Counter

from datamodules.rl import environments
from datamodules.rl.environment_wrappers import ActionRepeat
from datamodules.rl.environments import evaluation_seed, make_env, make_vector_env, next_observations, training_seed

HERE = f"mod:{__name__}"
UNIT = gym.spaces.Box(-1, 1, (1,), np.float32)


class Discrete(Counter):
    action_space = gym.spaces.Discrete(2)


class Unbounded(Counter):
    action_space = gym.spaces.Box(-np.inf, np.inf, (2,))


class Images(Counter):
    observation_space = gym.spaces.Dict({"camera": gym.spaces.Box(0, 255, (8, 8, 3), np.uint8), "joint": UNIT})


class Words(Counter):
    observation_space = gym.spaces.Dict({"words": gym.spaces.Sequence(UNIT)})


class Nested(Counter):
    observation_space = gym.spaces.Dict({"b": gym.spaces.Box(-9, 9, (2, 2)), "a": gym.spaces.Discrete(3)})

    def observe(self):
        return {"b": np.arange(4, dtype=np.float32).reshape(2, 2), "a": 2}


def test_wrappers_in_order():
    env = make_env(f"{HERE}:Counter", time_limit=4, action_repeat=3)
    names = []
    while isinstance(env, gym.Wrapper):
        names.append(type(env).__name__)
        env = env.env
    assert names == ["Float32Observation", "ActionRepeat", "TimeLimit", "RescaleAction", "FlattenObservation"]
    assert isinstance(env, Counter)


def test_actions_are_scaled_to_the_bounds():
    env = make_env(f"{HERE}:Counter")
    env.reset(seed=0)
    assert env.action_space == gym.spaces.Box(-1, 1, (2,), np.float32)
    env.step(np.float32([-1, 0.5]))
    assert env.unwrapped.action == pytest.approx([-2, 7.5])


def test_repeat_sums_rewards_and_stops_at_the_end():
    env = make_env(f"{HERE}:Counter", action_repeat=3)
    env.reset(seed=1)
    observation, reward, terminated, truncated, _ = env.step(np.zeros(2, np.float32))
    assert (observation[2], reward, terminated, truncated) == (3, 1 + 2 + 3, False, False)
    observation, reward, terminated, truncated, _ = env.step(np.zeros(2, np.float32))
    assert (observation[2], reward, terminated, truncated) == (4, 4, True, False)
    assert observation.dtype == np.float32


def test_time_limit_counts_base_steps_and_truncates():
    env = make_env(f"{HERE}:Counter", action_repeat=2, time_limit=3)
    env.reset(seed=2)
    env.step(np.zeros(2, np.float32))
    observation, reward, terminated, truncated, _ = env.step(np.zeros(2, np.float32))
    assert (observation[2], reward, terminated, truncated) == (3, 3, False, True)


def test_time_limit_replaces_the_registered_one():
    def length(**options) -> int:
        env = make_env("gym:Pendulum-v1", seed=0, **options)
        env.reset()
        steps = 1
        while not env.step(np.zeros(1, np.float32))[3]:
            steps += 1
        return steps

    assert (length(), length(time_limit=7), length(time_limit=250), length(action_repeat=4)) == (200, 7, 250, 50)


def test_dictionaries_become_flat():
    observation, _ = make_env(f"{HERE}:Nested").reset(seed=0)
    assert observation.tolist() == [0, 0, 1, 0, 1, 2, 3]  # keys in alphabetical order, whole numbers as one-hot
    assert observation.dtype == np.float32


def test_next_observations_never_cross_an_episode():
    envs = make_vector_env(f"{HERE}:Counter", 3, seed=30)
    assert isinstance(envs, SyncVectorEnv)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    observations, _ = envs.reset(seed=[30, 31, 32])
    counts = {"terminated": np.zeros(3, int), "truncated": np.zeros(3, int)}
    for _ in range(40):
        latest, rewards, terminated, truncated, infos = envs.step(envs.action_space.sample())
        reached = next_observations(latest, infos)
        assert reached.dtype == np.float32
        assert (reached[:, :2] == observations[:, :2]).all()
        assert (reached[:, 2] == observations[:, 2] + 1).all()
        assert (reached[:, 2] == rewards).all()
        ended = reached[:, 2] == 3 + np.array([0, 1, 2])
        assert (terminated == ended & (reached[:, 1] % 2 == 1)).all()
        assert (truncated == ended & (reached[:, 1] % 2 == 0)).all()
        assert (latest[ended, 2] == 0).all()
        assert (latest[~ended] == reached[~ended]).all()
        counts["terminated"] += terminated
        counts["truncated"] += truncated
        observations = latest
    assert counts["terminated"].tolist() == [7, 5, 4]  # of 13, 10 and 8 episodes the odd ones
    assert counts["truncated"].tolist() == [6, 5, 4]


def test_seeds():
    assert [training_seed(7, 2, index) for index in range(3)] == [2007, 2008, 2009]
    assert [evaluation_seed(7, episode) for episode in range(2)] == [1000007, 1000008]
    with pytest.raises(ValueError, match="seeds for 1000 environments, 1001 were asked for"):
        training_seed(0, 0, 1000)


def test_vector_is_seeded_by_rank_and_index():
    def shown(rank: int) -> list[float]:
        envs = make_vector_env(f"{HERE}:Counter", 2, seed=5, rank=rank)
        return envs.reset()[0][:, 0].tolist()

    assert shown(0) == [5, 6]
    assert shown(3) == [3005, 3006]
    actions = [make_vector_env(f"{HERE}:Counter", 2, seed=5, rank=rank).action_space.sample() for rank in (0, 0, 1)]
    assert (actions[0] == actions[1]).all()
    assert (actions[0] != actions[2]).any()


def test_async_has_the_trajectory_of_sync():
    sync, parallel = (make_vector_env("gym:Pendulum-v1", 2, time_limit=3, vectorization=mode) for mode in ("sync", "async"))
    assert isinstance(parallel, AsyncVectorEnv)
    try:
        assert (sync.reset()[0] == parallel.reset()[0]).all()
        for step in range(7):
            action = sync.action_space.sample()
            assert (action == parallel.action_space.sample()).all()
            one, two = sync.step(action), parallel.step(action)
            assert all((a == b).all() for a, b in zip(one[:4], two[:4], strict=True))
            assert (next_observations(one[0], one[4]) == next_observations(two[0], two[4])).all()
            assert one[3].all() == (step in (2, 5))
    finally:
        parallel.close()


def test_auto_prefers_one_process_for_cheap_steps(monkeypatch):
    asked = []
    monkeypatch.setattr(environments, "AsyncVectorEnv", lambda *_, **options: asked.append(options) or SyncVectorEnv([Counter]))
    assert isinstance(make_vector_env(f"{HERE}:Counter", 2, vectorization="auto"), SyncVectorEnv)
    assert not asked
    monkeypatch.setattr(environments, "_step_seconds", lambda _: 2.1e-3)
    make_vector_env(f"{HERE}:Counter", 2, vectorization="auto")
    assert len(asked) == 1
    make_vector_env(f"{HERE}:Counter", 1, vectorization="auto")
    assert len(asked) == 1


def test_suite_task_as_environment():
    env = make_env("dmc:finger-spin")
    raw = env.unwrapped.dm_env
    assert list(raw.observation_spec()) == ["position", "velocity", "touch"]
    observation, _ = env.reset(seed=4)
    parts = raw.task.get_observation(raw.physics)
    assert observation.dtype == np.float32
    assert observation.tolist() == np.float32([*parts["position"], *parts["velocity"], *parts["touch"]]).tolist()
    assert env.action_space == gym.spaces.Box(-1, 1, (2,), np.float32)


def test_suite_seed_repeats_the_episode_exactly():
    fresh, used = make_env("dmc:reacher-easy"), make_env("dmc:reacher-easy")
    used.reset(seed=1)
    for _ in range(5):
        used.step(used.action_space.sample())
    used.reset()
    for env in (fresh, used):
        env.action_space.seed(0)
    assert (fresh.reset(seed=9)[0] == used.reset(seed=9)[0]).all()
    for _ in range(20):
        assert (fresh.step(fresh.action_space.sample())[0] == used.step(used.action_space.sample())[0]).all()
    assert (fresh.reset()[0] == used.reset()[0]).all()
    assert (fresh.reset(seed=10)[0] != used.reset(seed=9)[0]).any()


def test_suite_time_limit_truncates_and_discount_zero_terminates(monkeypatch):
    env = make_env("dmc:cartpole-balance", action_repeat=100)
    env.reset(seed=0)
    ends = [env.step(np.zeros(1, np.float32))[2:4] for _ in range(10)]
    assert ends == [(False, False)] * 9 + [(False, True)]
    assert env.unwrapped.dm_env._step_limit == 1000
    env.reset()
    for discount, end in ((0.0, (True, False)), (1.0, (False, True))):
        monkeypatch.setattr(env.unwrapped.dm_env.task, "get_termination", lambda _, discount=discount: discount)
        assert env.step(np.zeros(1, np.float32))[2:4] == end
        env.reset()


def test_suite_time_limit_of_the_user():
    env = make_env("dmc:cartpole-balance", action_repeat=600, time_limit=1200)
    env.reset(seed=0)
    assert [env.step(np.zeros(1, np.float32))[3] for _ in range(2)] == [False, True]


def test_suite_task_that_draws_says_what_it_needs(monkeypatch):
    env = make_env("dmc:cartpole-balance")

    def draw() -> None:
        raise RuntimeError("No OpenGL rendering backend is available.")

    monkeypatch.setattr(env.unwrapped.dm_env, "reset", draw)
    with pytest.raises(RuntimeError, match="dmc:cartpole-balance draws at every reset: set MUJOCO_GL=egl"):
        env.reset()


def test_environment_that_a_module_registers(tmp_path: Path, monkeypatch):
    (tmp_path / "leyden_test_room.py").write_text(
        "import gymnasium as gym\n"
        "gym.register('LeydenRoom-v0', 'gymnasium.envs.classic_control:PendulumEnv', max_episode_steps=2)\n"
        "Thing = 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    try:
        env = make_env("mod:leyden_test_room:LeydenRoom-v0", seed=0)
        env.reset()
        assert [env.step(np.zeros(1, np.float32))[3] for _ in range(2)] == [False, True]
        with pytest.raises(ValueError, match=r"LeydenRom-v0' is unknown; did you mean LeydenRoom-v0"):
            make_env("mod:leyden_test_room:LeydenRom-v0")
        with pytest.raises(ValueError, match=r"leyden_test_room\.Thing is no gymnasium\.Env"):
            make_env("mod:leyden_test_room:Thing")
    finally:
        gym.registry.pop("LeydenRoom-v0", None)
        sys.modules.pop("leyden_test_room", None)


@pytest.mark.parametrize(
    ("id", "message"),
    [
        ("Hopper-v5", r"no known prefix; did you mean gym:Hopper-v5\?"),
        ("atari:Pong", r"no known prefix; use gym:Hopper-v5"),
        ("gym:", "no known prefix"),
        ("mod:json", "no known prefix"),
        ("gym:Hoper-v5", r"'gym:Hoper-v5' is unknown; did you mean Hopper-v5"),
        ("gym:Hopper-v9", r"'gym:Hopper-v9' is unknown; did you mean Hopper-v5"),
        ("dmc:finger-spun", r"dmc:finger-spun is unknown; did you mean dmc:finger-spin"),
        ("dmc:xyzzy", "dmc:xyzzy is unknown; tasks are named like dmc:finger-spin"),
        ("mod:no_such_room:Thing", "No module named 'no_such_room'"),
        ("gym:CartPole-v1", r"action space Discrete\(2\), only a Box"),
        ("dmc:lqr-lqr_2_1", "unbounded actions"),
        (f"{HERE}:Discrete", "only a Box"),
        (f"{HERE}:Unbounded", "unbounded actions"),
        (f"{HERE}:Images", "shows images"),
        (f"{HERE}:Words", "is no flat array"),
    ],
)
def test_refusals(id: str, message: str):
    with pytest.raises(ValueError, match=message):
        make_env(id)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"action_repeat": 0}, "action_repeat=0"), ({"time_limit": 0}, "time_limit=0")],
)
def test_bad_numbers_are_refused(options: dict[str, int], message: str):
    with pytest.raises(ValueError, match=message):
        make_env(f"{HERE}:Counter", **options)


def test_bad_vectors_are_refused():
    with pytest.raises(ValueError, match="num_envs=0"):
        make_vector_env(f"{HERE}:Counter", 0)
    with pytest.raises(ValueError, match="vectorization='threads' is unknown"):
        make_vector_env(f"{HERE}:Counter", 1, vectorization="threads")


def test_too_new_mujoco_is_refused_with_the_suite(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "4.0.0")
    with pytest.raises(ImportError, match=r"mujoco below 4, found 4\.0\.0: pip install 'mujoco<4'"):
        make_env("dmc:finger-spin")


def test_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "dm_control", None)
    with pytest.raises(ImportError, match=r"dmc: environments need dm_control: pip install 'leyden\[rl\]'"):
        make_env("dmc:finger-spin")
    monkeypatch.setitem(sys.modules, "gymnasium.envs.mujoco.hopper_v5", None)
    monkeypatch.setitem(sys.modules, "gymnasium.envs.mujoco", None)
    with pytest.raises(ImportError, match=r"'gym:Hopper-v5' cannot be built .*pip install 'leyden\[rl\]'"):
        make_env("gym:Hopper-v5")


def test_opengl_is_off_unless_asked_for(monkeypatch):
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    make_env(f"{HERE}:Counter")
    assert os.environ["MUJOCO_GL"] == "disabled"
    with pytest.raises(ValueError, match="MUJOCO_GL=disabled"):
        make_env("dmc:finger-spin", render_mode="rgb_array")
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    make_env(f"{HERE}:Counter")
    assert os.environ["MUJOCO_GL"] == "osmesa"


@pytest.mark.parametrize(("display", "backend"), [(None, "egl"), (":0", "glfw")])
def test_opengl_is_on_if_asked_for(monkeypatch, display: str | None, backend: str):
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    if display:
        monkeypatch.setenv("DISPLAY", display)
    make_env("gym:Pendulum-v1", render_mode="rgb_array")
    assert os.environ["MUJOCO_GL"] == backend


def test_repeat_stops_at_truncation():
    env = ActionRepeat(gym.wrappers.TimeLimit(Counter(), 2), 5)
    env.reset(seed=2)
    assert env.step(np.zeros(2, np.float32))[1:4] == (3.0, False, True)
