import pytest

from benchmarks.calculations.replay_memory import FIELDS, replay_megabytes


@pytest.mark.parametrize(("env", "observation", "action"), [("gym:Hopper-v5", 11, 3), ("gym:Humanoid-v5", 348, 17)])
def test_megabytes_by_hand(env: str, observation: int, action: int):
    # a million transitions: float32 is 4 MB a number, bool 1 MB
    expected = {
        "obs": 4 * observation,
        "action": 4 * action,
        "reward": 4,
        "next_obs": 4 * observation,
        "terminated": 1,
        "truncated": 1,
    }
    found = replay_megabytes(env, 0)
    assert {name: found[name] for name in FIELDS} == expected
    assert found["total"] == sum(expected.values())
    assert len(found) == len(FIELDS) + 1
