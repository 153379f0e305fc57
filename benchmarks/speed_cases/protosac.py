"""Our SAC beside stable-baselines3's, and ProtoSAC beside our SAC, on one thread."""

from functools import partial
from typing import Any

from benchmarks.sac_agents import Setting, our_steps, our_update, their_steps, their_update
from benchmarks.speed import Case, installed_version
from benchmarks.timing import PairedTimes, measure
from lightning_modules.protosac.module import ProtoSACModule

PEER = "stable-baselines3"
STEPS = 1_000
PROTOTYPES = 32
UPDATES = (Setting("Hopper-v5", 64, 128), Setting("Hopper-v5", 256, 256))
LOOPS = (Setting("Pendulum-v1", 64, 128), Setting("Pendulum-v1", 64, 128, train_freq=4), Setting("Hopper-v5", 256, 256))
MIXINGS: dict[str, dict[str, Any]] = {"blend": {}, "mixture, top 4": {"mixing": "mixture", "top_m": 4}}


def update(setting: Setting, pairs: int) -> PairedTimes:
    """One update of SAC, sampling included."""
    return measure(our_update(setting), their_update(setting), pairs)


def loop(setting: Setting, pairs: int) -> PairedTimes:
    """A whole short training, building the agent included."""
    return measure(our_steps(setting, STEPS), their_steps(setting, STEPS), pairs, least_seconds=0.0, warm_up=1)


def prototypes(setting: Setting, options: dict[str, Any], pairs: int) -> PairedTimes:
    """One update of ProtoSAC beside one of our SAC."""
    ours = our_update(setting, ProtoSACModule, num_prototypes=PROTOTYPES, **options)
    return measure(ours, our_update(setting), pairs)


def _with_peer(name: str, time: Any, pairs: int) -> Case:
    return Case(name, f"{PEER} SAC", installed_version(PEER), time, pairs, needs_package=PEER)


CASES = (
    *(_with_peer(f"SAC update, {s.env} ({s.sizes})", partial(update, s), 20) for s in UPDATES),
    *(_with_peer(f"{STEPS:,} steps of SAC, {s.env} ({s.sizes}, ticks of {s.train_freq})", partial(loop, s), 5) for s in LOOPS),
    *(
        Case(f"ProtoSAC update, {name}, K {PROTOTYPES}, {s.env} ({s.sizes})", "our SAC", "", partial(prototypes, s, options), 20)
        for s in UPDATES
        for name, options in MIXINGS.items()
    ),
)
