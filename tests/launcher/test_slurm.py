"""What SLURM does to a job: many tasks, a signal before the time limit, and another turn."""

import json
import os
import signal
from pathlib import Path

from processes import launch
from short_runs import CONFIGS, TOY

JOB = 4711
DDP = ["--config", CONFIGS / "overlays" / "ddp.yaml", "--trainer.accelerator=cpu"]


def finished(cwd: Path) -> dict:
    """The summary of the only run folder."""
    (folder,) = (cwd / "runs" / "support" / "toy").iterdir()
    return json.loads((folder / "summary.json").read_text())


def test_the_tasks_of_a_job_share_one_folder(tmp_path: Path):
    done = launch([*TOY, *DDP], tmp_path, ranks=2, slurm_job=JOB)
    assert [p.status for p in done] == [0, 0], done
    assert finished(tmp_path)["steps"] == 24


def test_a_job_that_is_requeued_continues_in_its_folder(tmp_path: Path):
    scontrol = tmp_path / "scontrol"
    scontrol.write_text('#!/bin/sh\necho "$@" >> "$(dirname "$0")/requeued"\n')
    scontrol.chmod(0o755)
    cwd = tmp_path / "work"
    cwd.mkdir()
    usr1 = f'{{"class_path": "toy.SignalAt", "init_args": {{"step": 9, "number": {int(signal.SIGUSR1)}}}}}'
    send = f'[{usr1}, {{"class_path": "toy.KillAt"}}]'
    turn = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "KILL_AT": "14 batch_start"}
    (first,) = launch([*TOY, f"--trainer.callbacks={send}"], cwd, env=turn, slurm_job=JOB)
    assert first.status == -signal.SIGKILL, first
    assert (tmp_path / "requeued").read_text() == f"requeue {JOB}\n"
    (second,) = launch(TOY, cwd, env={"SLURM_RESTART_COUNT": "1"}, slurm_job=JOB)
    assert second.status == 0, second
    assert finished(cwd)["steps"] == 24


def test_another_job_starts_a_folder_of_its_own(tmp_path: Path):
    launch([*TOY, '--trainer.callbacks+={"class_path": "toy.KillAt"}'], tmp_path, env={"KILL_AT": "10 batch_start"}, slurm_job=JOB)
    (other,) = launch(TOY, tmp_path, env={"SLURM_RESTART_COUNT": "1"}, slurm_job=JOB + 1)
    assert other.status == 0, other
    assert {p.name for p in (tmp_path / "runs" / "support" / "toy").iterdir()} == {"0", "1"}


def test_tasks_that_are_not_counted_by_node_are_refused_in_one_line(tmp_path: Path):
    (done,) = launch(TOY, tmp_path, env={"SLURM_NTASKS": "2", "SLURM_PROCID": "0", "SLURM_JOB_NAME": "test"})
    assert done.status == 2
    assert "error: You set `--ntasks=2`" in done.output
    assert "--ntasks-per-node=2" in done.output
