"""Fair timing of two functions: in turn, in one process, judged by the median of paired ratios."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

Timed = Callable[[], object]


@dataclass(frozen=True)
class PairedTimes:
    """Seconds of n executions of ours and of the peer, measured in turn."""

    ours: list[float]
    peer: list[float]

    @property
    def ratio(self) -> float:
        """Median of the ratios ours / peer of neighbouring measurements.

        A load that comes and goes hits both sides of a pair, and hits few pairs: neither moves this number much.
        """
        return median(ours / peer for ours, peer in zip(self.ours, self.peer, strict=True))


def measure(ours: Timed, peer: Timed, pairs: int, least_seconds: float = 0.05, warm_up: int = 2) -> PairedTimes:
    """Time ``ours`` and ``peer`` in turn.

    Args:
        ours, peer: what is timed. On a GPU they must wait for its work to end.
        pairs: number of pairs of measurements.
        least_seconds: a measurement repeats its function until about this long, so that the clock's grain does not matter.
        warm_up: executions of each side before anything is measured.

    Raises:
        ValueError: if there is no pair to measure.
    """
    if pairs < 1:
        raise ValueError(f"pairs={pairs}: at least one pair must be measured")
    for function in (ours, peer):
        for _ in range(warm_up):
            function()
    repeats = [_repeats(function, least_seconds) for function in (ours, peer)]
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(pairs):
        for side, function in enumerate((ours, peer)):
            seconds[side].append(_time(function, repeats[side]))
    return PairedTimes(*seconds)


def _repeats(function: Timed, least_seconds: float) -> int:
    """Return how often a function fits into ``least_seconds``."""
    return max(1, round(least_seconds / max(_time(function, 1), 1e-9)))


def _time(function: Timed, repeats: int) -> float:
    """Return the mean seconds of an execution."""
    begin = time.perf_counter()
    for _ in range(repeats):
        function()
    return (time.perf_counter() - begin) / repeats
