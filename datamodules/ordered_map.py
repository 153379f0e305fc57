"""Map a function over a long stream of jobs, on several cores once that is worth their start-up."""

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from typing import TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


def ordered_map(function: Callable[[Job], Result], jobs: Iterable[Job], alone_seconds: float = 5.0) -> Iterator[Result]:
    """Yield ``function(job)`` for each job, in the order of the jobs, which may be endless.

    Args:
        function: pure function that can be pickled.
        jobs: stream of jobs, read only a little ahead.
        alone_seconds: how long to work in this process before others are started.
    """
    jobs = iter(jobs)
    begun = time.monotonic()
    for job in jobs:
        yield function(job)
        if time.monotonic() - begun >= alone_seconds:
            break
    else:
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores == 1:
        yield from map(function, jobs)
        return
    pool = ProcessPoolExecutor(cores)
    try:
        waiting: deque[Future[Result]] = deque(pool.submit(function, job) for job in islice(jobs, 2 * cores))
        while waiting:
            result = waiting.popleft().result()
            waiting.extend(pool.submit(function, job) for job in islice(jobs, 1))
            yield result
    finally:
        pool.shutdown(cancel_futures=True)
