"""How much memory a replay of a million transitions needs, field by field."""

from collections.abc import Mapping

TRANSITIONS = 1_000_000
FIELDS = ("obs", "action", "reward", "next_obs", "terminated", "truncated")


def replay_megabytes(env: str, seed: int) -> Mapping[str, float]:
    """Return the megabytes (1e6 bytes) of a replay of a million transitions, ``total`` and by field.

    The replay is a real one; its memory is reserved and not touched.

    Args:
        env: environment, see :func:`datamodules.rl.environments.make_env`.
        seed: memory does not depend on it.
    """
    from datamodules.rl.environments import make_env
    from datamodules.rl.replay import ReplayBuffer

    probe = make_env(env)
    observations, actions = probe.observation_space.shape, probe.action_space.shape
    probe.close()
    assert observations is not None
    assert actions is not None
    replay = ReplayBuffer(TRANSITIONS, observations, actions[0])
    megabytes = {name: field.nbytes / 1e6 for name, field in replay.fields.items()}
    return {**megabytes, "total": sum(megabytes.values())}
