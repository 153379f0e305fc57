"""What shows on the terminal."""

import subprocess
import sys
from pathlib import Path

SAY = """
import logging, warnings
from launcher.quiet import quiet
quiet()
quiet()
logging.getLogger("datamodules.sudoku").info("generating 9 puzzles, once")
logging.getLogger("another.library").info("an advertisement")
warnings.warn("`torch.jit.script` is deprecated. Please switch")
warnings.warn("mind this")
"""


def test_messages_of_our_own_and_real_warnings_show_once():
    done = subprocess.run([sys.executable, "-c", SAY], cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.stderr.splitlines() == ["generating 9 puzzles, once", "warning: mind this"], done.stderr
