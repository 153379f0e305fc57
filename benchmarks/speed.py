"""Time a method's code beside its peers: ``python -m benchmarks.speed sheaf_admm`` or ``launcher``.

Writes ``docs/results/speed.json`` and ``speed.md``.
"""

import argparse
import importlib
import pkgutil
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median

from benchmarks.experiments import REPOSITORY
from benchmarks.provenance import provenance
from benchmarks.speed_results import SpeedResults, SpeedRow, milliseconds
from benchmarks.timing import PairedTimes


@dataclass(frozen=True)
class Case:
    """A comparison with a peer.

    Attributes:
        name: what is timed, with its sizes.
        peer_name: what it is compared with.
        peer_version: version of the peer, empty for our own code.
        time: measures a number of pairs.
        pairs: default number of pairs.
        needs: a program without which the case is left out.
        needs_package: a Python package without which the case is left out.
    """

    name: str
    peer_name: str
    peer_version: str
    time: Callable[[int], PairedTimes]
    pairs: int = 20
    needs: str = ""
    needs_package: str = ""

    @property
    def missing(self) -> str:
        """What the case needs and is not installed here."""
        if self.needs and shutil.which(self.needs) is None:
            return self.needs
        return self.needs_package if self.needs_package and not installed_version(self.needs_package) else ""


def installed_version(package: str) -> str:
    """Return the version of a Python package, empty if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def speed_names() -> list[str]:
    """Methods (and the launcher) that have speed cases."""
    from benchmarks import speed_cases

    return sorted(module.name for module in pkgutil.iter_modules(speed_cases.__path__))


def measure_case(method: str, case: Case, pairs: int | None = None) -> SpeedRow:
    """Time one case."""
    times = case.time(pairs or case.pairs)
    ours, peer = median(times.ours), median(times.peer)
    return SpeedRow(method, case.name, ours, peer, case.peer_name, case.peer_version, round(times.ratio, 4), len(times.ours))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("method", choices=speed_names())
    parser.add_argument("--only", nargs="+", default=[], metavar="TEXT", help="only cases whose name contains a text")
    parser.add_argument("--pairs", type=int, help="pairs of measurements, in the place of the case's own number")
    parser.add_argument("--results-root", type=Path, default=REPOSITORY / "docs" / "results", help="folder of the results")
    options = parser.parse_args(given)
    cases = importlib.import_module(f"benchmarks.speed_cases.{options.method}").CASES
    chosen = [case for case in cases if not options.only or any(text in case.name for text in options.only)]
    if not chosen:
        parser.error(f"--only matches no case; there are: {'; '.join(case.name for case in cases)}")
    rows = []
    for case in chosen:
        if case.missing:
            print(f"{case.name}: left out, {case.missing} is not installed", flush=True)
            continue
        row = measure_case(options.method, case, options.pairs)
        print(f"{row.case}: {milliseconds(row.ours)}, {row.peer_name} {milliseconds(row.peer)}, {row.ratio:.3f}", flush=True)
        rows.append(row)
    results = SpeedResults.load(options.results_root / "speed.json")
    command = shlex.join(["python", "-m", "benchmarks.speed", *given])
    results.replace(options.method, rows, provenance(command))
    results.save(options.results_root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
