"""Measured speed beside peers, kept in ``docs/results/speed.json`` and shown in ``speed.md``."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.json_files import read_json, write_whole
from benchmarks.report import table


@dataclass(frozen=True)
class SpeedRow:
    """One comparison.

    Attributes:
        method, case: what was timed.
        ours, peer: median seconds of one execution.
        peer_name, peer_version: what it was compared with.
        ratio: median of the paired ratios ours / peer; below 1 means that ours is faster.
        n: number of pairs.
    """

    method: str
    case: str
    ours: float
    peer: float
    peer_name: str
    peer_version: str
    ratio: float
    n: int


@dataclass
class SpeedResults:
    """All rows, and for each method where they were measured."""

    rows: list[SpeedRow] = field(default_factory=list)
    meta: dict[str, dict[str, Any]] = field(default_factory=dict)

    def replace(self, method: str, rows: Sequence[SpeedRow], provenance: dict[str, Any]) -> None:
        """Put new rows in the place of the method's rows of the same cases."""
        cases = {row.case for row in rows}
        self.rows = [row for row in self.rows if row.method != method or row.case not in cases]
        self.rows = sorted([*self.rows, *rows], key=lambda row: row.method)
        self.meta[method] = provenance

    def save(self, folder: Path) -> None:
        """Write ``speed.json`` and ``speed.md``."""
        content = {"rows": [asdict(row) for row in self.rows], "meta": self.meta}
        write_whole(folder / "speed.json", json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        write_whole(folder / "speed.md", self.markdown())

    @classmethod
    def load(cls, path: Path) -> "SpeedResults":
        """Read ``speed.json``; a missing file gives no rows.

        Raises:
            ValueError: if the file is not what ``save`` writes.
        """

        def build(content: dict[str, Any]) -> "SpeedResults":
            return cls([SpeedRow(**row) for row in content["rows"]], content["meta"])

        return read_json(path, build) or cls()

    def markdown(self) -> str:
        """Return the report."""
        parts = [
            "# Speed beside peers",
            "Generated from `speed.json`; do not edit. Both sides run in turn, ours then peer, n times after a warm-up. "
            "The ratio is the median of the n paired ratios ours / peer: below 1, ours is faster.",
            speed_table(self.rows),
        ]
        for method, source in sorted(self.meta.items()):
            versions = ", ".join(f"{package} {version}" for package, version in source["versions"].items())
            parts.append(
                f"{method}: `{source['command']}`, revision {source['git'] or 'unknown'}, {versions}, on {source['machine']}."
            )
        return "\n\n".join(parts) + "\n"


def speed_table(rows: Sequence[SpeedRow]) -> str:
    """Return the Markdown table of speed rows."""
    header = ["method", "case", "peer", "ours", "peer time", "ours / peer", "pairs"]
    cells = [
        [
            row.method,
            row.case,
            f"{row.peer_name} {row.peer_version}".strip(),
            milliseconds(row.ours),
            milliseconds(row.peer),
            f"{row.ratio:.3f}",
            str(row.n),
        ]
        for row in rows
    ]
    return table(header, cells, left=3)


def milliseconds(seconds: float) -> str:
    """Write a time with three digits, in ms below one second."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
