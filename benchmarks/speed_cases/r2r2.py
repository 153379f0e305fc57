"""Our TD7 beside a transcription of its published script, and redundancy reduction beside none, on one thread."""

from functools import partial

from benchmarks.speed import Case
from benchmarks.td7_agents import Setting, our_update, script_update
from benchmarks.timing import PairedTimes, measure
from lightning_modules.r2r2.redundancy import RedundancyReduction

SETTINGS = (Setting("HalfCheetah-v5", 64, 64), Setting("HalfCheetah-v5", 256, 256))


def beside_the_script(setting: Setting, pairs: int) -> PairedTimes:
    """Two updates of TD7, sampling and priorities included."""
    return measure(our_update(setting), script_update(setting), pairs)


def redundancy_reduction(setting: Setting, pairs: int) -> PairedTimes:
    """Two updates of TD7+R2R2 beside two of TD7."""
    return measure(our_update(setting, RedundancyReduction()), our_update(setting), pairs)


CASES = (
    *(Case(f"two TD7 updates, {s.env} ({s.sizes})", "one-file script", "", partial(beside_the_script, s)) for s in SETTINGS),
    *(Case(f"two TD7+R2R2 updates, {s.env} ({s.sizes})", "our TD7", "", partial(redundancy_reduction, s), 40) for s in SETTINGS),
)
