"""Computes the values of a calculation, several at a time, and keeps them so that an interrupted one goes on."""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from benchmarks.experiments import Calculation
from benchmarks.json_files import read_json, write_whole
from benchmarks.pool import THREAD_VARIABLES, duration

Values = Mapping[str, float]
Repetition = tuple[str, int]
"""A variant and a seed."""


def calculate(
    calculation: Calculation,
    repetitions: list[Repetition],
    folder: Path,
    jobs: int = 1,
    say: Callable[[str], None] = print,
) -> dict[Repetition, Values]:
    """Return the values of all repetitions, in their order.

    Args:
        calculation: what is computed.
        repetitions: variants and seeds.
        folder: where values are kept, one file a repetition; a repetition whose file is there is not computed again.
        jobs: repetitions of a resumable calculation at a time, a process and a core each; others are computed in this process.
        say: gets a line for each repetition that ends.
    """
    files = {(variant, seed): folder / variant / f"seed_{seed}.json" for variant, seed in repetitions}
    found = {repetition: read_json(file, dict) for repetition, file in files.items()} if calculation.resumable else {}
    known: dict[Repetition, Values] = {repetition: values for repetition, values in found.items() if values is not None}
    missing = [repetition for repetition in repetitions if repetition not in known]
    begin = time.monotonic()
    alone = jobs == 1 or not calculation.resumable
    computed = _in_turn(calculation, missing) if alone else _side_by_side(calculation, missing, jobs)
    for done, (repetition, values) in enumerate(computed, start=1):
        known[repetition] = values
        if calculation.resumable:
            write_whole(files[repetition], json.dumps(values) + "\n")
            left = (time.monotonic() - begin) / done * (len(missing) - done)
            say(f"[{done}/{len(missing)}] {calculation.name}/{repetition[0]}/seed_{repetition[1]}, about {duration(left)} left")
    return {repetition: known[repetition] for repetition in repetitions}


def _in_turn(calculation: Calculation, repetitions: list[Repetition]) -> Iterator[tuple[Repetition, Values]]:
    for repetition in repetitions:
        yield repetition, calculation.compute(*repetition)


def _side_by_side(calculation: Calculation, repetitions: list[Repetition], jobs: int) -> Iterator[tuple[Repetition, Values]]:
    own_core = dict.fromkeys(THREAD_VARIABLES, "1")
    before = {name: os.environ.get(name) for name in own_core}
    os.environ |= own_core  # the processes read it when they start
    try:
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            futures = {pool.submit(calculation.compute, *repetition): repetition for repetition in repetitions}
            for future in as_completed(futures):
                yield futures[future], future.result()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
