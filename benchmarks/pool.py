"""Runs many jobs, a few at a time on this machine or all of them on a cluster, and says how far they are."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from benchmarks.jobs import Job, Outcome

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
POLL_SECONDS = 0.05


class Executor(Protocol):
    """Does jobs and hands out their outcomes as they end.

    Attributes:
        workers: how many jobs it does at a time; None if it does not know.
    """

    @property
    def workers(self) -> int | None: ...

    def __call__(self, jobs: Sequence[Job]) -> Iterator[Outcome]: ...


@dataclass
class Progress:
    """Lines that say what has ended and about when the rest will.

    Attributes:
        total: number of runs to do.
        workers: how many run at a time; None if nobody knows.
    """

    total: int
    workers: int | None
    seconds: list[float] = field(default_factory=list)

    def line(self, outcome: Outcome) -> str:
        """Return the line for a run that has just ended."""
        self.seconds.append(outcome.seconds)
        done = len(self.seconds)
        word = "FAILED" if outcome.failure else "finished"
        text = f"[{done}/{self.total}] {outcome.job.label} {word} in {duration(outcome.seconds)}"
        if done < self.total and self.workers:
            rounds = -(-(self.total - done) // self.workers)
            text += f", about {duration(rounds * sum(self.seconds) / done)} left"
        return text


def run_all(jobs: Sequence[Job], execute: Executor, say: Callable[[str], None] = print) -> list[Outcome]:
    """Do the jobs that are not finished; return the failures, whose last words are shown.

    Jobs that build on others start in a later round; if one of those has failed, they count as failed too.
    """
    waiting = [job for job in jobs if job.finished() is None]
    if len(waiting) < len(jobs):
        say(f"{len(jobs) - len(waiting)} of {len(jobs)} runs are finished already")
    continued = sum(job.interrupted() for job in waiting)
    if continued:
        say(f"{continued} interrupted runs go on from their last checkpoint")
    progress = Progress(len(waiting), execute.workers)
    failures = []
    while waiting:
        ready = [job for job in waiting if not job.awaited()]
        for outcome in execute(ready) if ready else map(_not_started, waiting):
            say(progress.line(outcome))
            if outcome.failure:
                failures.append(outcome)
                say("    " + outcome.failure.replace("\n", "\n    "))
                say(f"    logs: {outcome.job.folder}")
        waiting = [job for job in waiting if ready and job not in ready]
    return failures


def _not_started(job: Job) -> Outcome:
    """Return the outcome of a job whose turn never comes."""
    return Outcome(job, 0.0, f"not started: it needs {', '.join(other.label for other in job.awaited())}, which is not finished")


@dataclass(frozen=True)
class LocalExecutor:
    """Runs ``workers`` jobs at a time; more than one get a core (and, where there are GPUs, a GPU) each."""

    workers: int = 1

    def __call__(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        waiting, slots = list(jobs), list(range(self.workers))
        running: dict[int, tuple[Job, subprocess.Popen[bytes], float]] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self.workers:
                    slot = next(slot for slot in slots if slot not in running)
                    job = waiting.pop(0)
                    running[slot] = (job, job.start(self.environment(slot)), time.monotonic())
                for slot, (job, process, begin) in list(running.items()):
                    if process.poll() is not None:
                        del running[slot]
                        yield job.outcome(process.returncode, time.monotonic() - begin)
                time.sleep(POLL_SECONDS)
        finally:
            for _, process, _ in running.values():
                process.terminate()
            for _, process, _ in running.values():
                process.wait()

    def environment(self, slot: int) -> dict[str, str]:
        """Return the variables that keep the job of a slot on its own core and GPU."""
        if self.workers == 1:
            return {}
        found = visible_gpus()
        gpu = {"CUDA_VISIBLE_DEVICES": found[slot % len(found)]} if found else {}
        return {**dict.fromkeys(THREAD_VARIABLES, "1"), **gpu}


def visible_gpus() -> list[str]:
    """Return the ids of the GPUs that this process may use, without importing torch."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return [gpu for gpu in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if gpu.strip()]
    return [str(number) for number, _ in enumerate(Path("/proc/driver/nvidia/gpus").glob("*"))]


@dataclass(frozen=True)
class ClusterExecutor:
    """Hands every job to submitit: ``slurm`` for a cluster, ``local`` to try it on one machine.

    Attributes:
        folder: where submitit keeps its logs; all nodes must see it.
        cluster: ``slurm``, ``local`` or ``debug``.
        options: parameters of submitit's AutoExecutor, for example ``slurm_partition`` or ``timeout_min``.
        workers: the cluster decides how many run at a time.
    """

    folder: Path
    cluster: str = "slurm"
    options: Mapping[str, Any] = field(default_factory=dict)
    workers: None = None

    def __call__(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        try:
            import submitit
        except ModuleNotFoundError as error:
            raise ValueError("--slurm needs submitit: pip install 'leyden[cluster]'") from error
        executor = submitit.AutoExecutor(folder=self.folder, cluster=self.cluster)
        executor.update_parameters(**self.options)
        with executor.batch():
            submitted = [executor.submit(ClusterTask(), job) for job in jobs]
        pending = dict(zip(submitted, jobs, strict=True))
        begin = time.monotonic()
        try:
            while pending:
                for handle in [handle for handle in pending if handle.done()]:
                    job, seconds = pending.pop(handle), time.monotonic() - begin
                    broken = handle.exception()
                    yield handle.result() if broken is None else Outcome(job, seconds, f"{type(broken).__name__}: {broken}")
                time.sleep(POLL_SECONDS if self.cluster != "slurm" else 5.0)
        finally:
            for handle in pending:
                handle.cancel()


class ClusterTask:
    """What a node of the cluster executes; when its time is up it is queued again and goes on from its last checkpoint."""

    def __call__(self, job: Job) -> Outcome:
        return job.outcome(0, 0.0) if job.finished() else job.run()

    def checkpoint(self, job: Job) -> Any:
        """Return what submitit queues again after a time-out or preemption."""
        import submitit

        return submitit.helpers.DelayedSubmission(self, job)


def duration(seconds: float) -> str:
    """Write a time in the largest fitting unit."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
