"""Every method trains alike on one process and on two, and on two nodes."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from parity import assert_parity
from processes import launch
from short_runs import PROJECT, SHORT_RUNS


@pytest.mark.parametrize("method", SHORT_RUNS)
def test_two_ranks_equal_one_process(tmp_path: Path, method: str):
    assert_parity(tmp_path, SHORT_RUNS[method])


def test_two_nodes_on_loopback(tmp_path: Path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {"PYTHONPATH": f"{PROJECT}:{PROJECT / 'tests' / 'support'}", "OMP_NUM_THREADS": "1"}
    agents = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", f"--node-rank={rank}"),
                *("--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=leyden"),
                *(PROJECT / "train.py", *SHORT_RUNS["toy"], "--config", PROJECT / "configs/overlays/ddp.yaml"),
            ],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [agent.communicate(timeout=300)[0] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], outputs
    folders = list((tmp_path / "runs" / "support" / "toy").iterdir())
    assert [folder.name for folder in folders] == ["0"]
    assert json.loads((folders[0] / "summary.json").read_text())["steps"] == 24


def test_workers_that_torchrun_restarts_continue(tmp_path: Path):
    words = [*SHORT_RUNS["toy"], "--trainer.devices=2"]
    kill = '--trainer.callbacks+={"class_path": "toy.KillAt"}'
    launch([*words, kill], tmp_path, ranks=2, env={"KILL_AT": "14 batch_start"})
    done = launch(words, tmp_path, ranks=2, env={"TORCHELASTIC_RESTART_COUNT": "1"})
    assert [p.status for p in done] == [0, 0], done
    (folder,) = (tmp_path / "runs" / "support" / "toy").iterdir()
    assert json.loads((folder / "summary.json").read_text())["steps"] == 24
