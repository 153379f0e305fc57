"""What the common trainer costs: its loop beside a plain torch loop, its start beside a bare LightningCLI script."""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.metadata import version

from benchmarks.experiments import REPOSITORY
from benchmarks.loop_overhead import trainer_beside_plain_loop
from benchmarks.speed import Case
from benchmarks.timing import PairedTimes, measure

CONFIG = "configs/sheaf_admm/sudoku.yaml"
QUIET = ["--trainer.logger", "false", "--trainer.enable_progress_bar", "false", "--trainer.enable_checkpointing", "false"]
TIMEOUT_SECONDS = 120


def start_up(pairs: int) -> PairedTimes:
    """Whole processes that build model, data and trainer and train nothing."""
    with tempfile.TemporaryDirectory() as folder:
        nothing = ["--config", CONFIG, "--trainer.max_steps", "0"]
        ours = _process("train.py", "fit", *nothing, "--run.root", folder, "--run.name", "speed/start_up")
        peer = _process("-m", "benchmarks.bare_cli", *nothing, "--trainer.default_root_dir", folder)
        return measure(ours, peer, pairs, least_seconds=0.0, warm_up=1)


def listing(pairs: int) -> PairedTimes:
    """``--list`` against a Python that only imports what reads the configs."""
    return measure(_process("train.py", "--list"), _process("-c", "import argparse, yaml"), pairs, least_seconds=0.0, warm_up=1)


def _process(*words: str) -> Callable[[], None]:
    """Return a function that runs Python with these words in the repository.

    Raises:
        RuntimeError: if the process fails.
    """

    def run() -> None:
        done = subprocess.run(
            [sys.executable, *words], cwd=REPOSITORY, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
        if done.returncode:
            raise RuntimeError(f"python {' '.join(words)} failed: {done.stderr[-2000:]}")

    return run


LIGHTNING = version("lightning")

CASES = (
    Case("start-up of train.py (Sudoku config)", "bare LightningCLI script", LIGHTNING, start_up, 5),
    Case("train.py --list", "python that imports yaml", "", listing, 10),
    Case(
        "an epoch of the Sudoku config, all defaults on",
        "plain torch loop",
        version("torch"),
        partial(trainer_beside_plain_loop, [CONFIG], []),
        8,
    ),
    Case(
        "an epoch of the Sudoku config, no loggers, bar and checkpoints",
        "plain torch loop",
        version("torch"),
        partial(trainer_beside_plain_loop, [CONFIG], QUIET),
        8,
    ),
)
