"""Run the launcher in real processes that share one import of torch and Lightning.

A fork server imports the heavy packages once; every process forked from it is a process of its own, with its own signals,
environment and death. Ranks meet in a store that this process hosts, as torchrun's agent does.
"""

import multiprocessing
import os
import runpy
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["lightning.pytorch.cli", "torchmetrics", "launcher.run", "toy"])


@dataclass
class Finished:
    """How a process ended: its exit status (negative: the signal that killed it) and what it printed."""

    status: int
    output: str


def launch(
    argv: Sequence[object],
    cwd: Path,
    ranks: int = 1,
    env: dict[str, str] | None = None,
    slurm_job: int | None = None,
    timeout: float = 300,
    module: str | None = None,
) -> list[Finished]:
    """Run ``train.py argv`` in ``cwd`` on ``ranks`` processes, as torchrun or as a SLURM job would, and wait for all of them.

    With a ``module`` it is ``python -m module argv`` that is run.
    """
    environments: list[dict[str, str]] = [{} for _ in range(ranks)]
    store = None
    if slurm_job is not None:
        for rank, environment in enumerate(environments):
            environment.update(_srun_environment(rank, ranks, slurm_job))
    elif ranks > 1:
        from torch.distributed import TCPStore

        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        for rank, environment in enumerate(environments):
            environment.update(_torchrun_environment(rank, ranks, store.port))
    for environment in environments:
        environment.update(env or {})
    with tempfile.TemporaryDirectory() as logs:
        files = [Path(logs) / str(rank) for rank in range(ranks)]
        words = [str(word) for word in argv]
        processes = [
            _context.Process(target=_run, args=(words, cwd, environment, file, module))
            for environment, file in zip(environments, files, strict=True)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(timeout)
            if process.is_alive():
                process.kill()
                process.join()
        return [Finished(p.exitcode or 0, f.read_text() if f.exists() else "") for p, f in zip(processes, files, strict=True)]


def _torchrun_environment(rank: int, ranks: int, port: int) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "test",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }


def _srun_environment(rank: int, ranks: int, job: int) -> dict[str, str]:
    return {
        "SLURM_JOB_ID": str(job),
        "SLURM_JOB_NAME": "test",
        "SLURM_NTASKS": str(ranks),
        "SLURM_NTASKS_PER_NODE": str(ranks),
        "SLURM_NNODES": "1",
        "SLURM_NODELIST": "127.0.0.1",
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank),
        "SLURM_NODEID": "0",
        "RANK": str(rank),
    }


def _run(argv: list[str], cwd: Path, environment: dict[str, str], log: Path, module: str | None) -> None:
    os.environ.pop("LEYDEN_DECISION", None)
    os.environ.update(environment)
    os.chdir(cwd)
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    import torch
    from lightning.pytorch.utilities.rank_zero import rank_zero_only

    torch.set_num_threads(1)
    rank_zero_only.rank = int(environment.get("RANK", "0"))
    if module is not None:
        sys.argv[1:] = argv
        sys.path.insert(0, str(cwd))
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return
    from launcher.main import main

    status = main(argv)
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(status)
