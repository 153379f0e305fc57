"""The table at the end of a run: its test metrics beside the last known ones of its baselines."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean, stdev

import yaml

from launcher.listing import experiments
from launcher.paths import PROJECT
from launcher.run_folder import RunFolder, runs

MAX_COLUMNS = 6


def result_table(folder: RunFolder, root: Path, monitor: str = "") -> str:
    """Return the table of a finished run.

    The baselines of ``method/task`` are the experiments ``method/task_…`` and those called ``task`` of other methods, on the same
    data. For each the newest finished run under ``root`` counts; where there is none, the published mean and standard deviation
    over seeds of ``docs/results``.

    Args:
        folder: the run.
        root: folder of all runs.
        monitor: metric that checkpoints are chosen by; what is measured of it in the test stands first.
    """
    metrics = folder.summary()["metrics"]
    tested = sorted((key for key in metrics if key.startswith("test/")), key=lambda key: (key[5:] != monitor[4:], len(key)))
    columns = (tested or sorted(metrics))[:MAX_COLUMNS]
    rows = [[f"{folder.name} (this run)", *(_number(metrics[key]) for key in columns)]]
    for name in _baselines(folder.name):
        known = _last_run(root, name, columns) or _published(name, columns)
        if known:
            rows.append(known)
    return _aligned([["", *columns], *rows])


def _baselines(name: str) -> list[str]:
    paths = {f"{path.parent.name}/{path.stem}": path for path in experiments()}
    task = name.rpartition("/")[2]
    alike = [other for other in paths if other.startswith(f"{name}_") or (other != name and other.endswith(f"/{task}"))]
    data = {other: yaml.safe_load(paths[other].read_text()).get("data") for other in [*alike, name] if other in paths}
    return [other for other in alike if data[other] == data.get(name)]


def _last_run(root: Path, name: str, columns: list[str]) -> list[str] | None:
    for other in runs(root, name):
        if other.finished and any(key in other.summary()["metrics"] for key in columns):
            known = other.summary()["metrics"]
            return [f"{name} (run {other.path.name})", *(_number(known.get(key)) for key in columns)]
    return None


def _published(name: str, columns: list[str]) -> list[str] | None:
    files = sorted((PROJECT / "docs" / "results").glob("*.json"))
    results = [json.loads(path.read_text()) for path in files]
    records = [record for known in results for record in known.get("records", []) if record["config"] == name]
    longest = max((record["steps"] for record in records), default=0)
    values = {key: [r["value"] for r in records if r["metric"] == key and r["steps"] == longest] for key in columns}
    cells = [_mean_and_spread([value for value in values[key] if value is not None]) for key in columns]
    return [f"{name} (published)", *cells] if any(cell != "-" for cell in cells) else None


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _mean_and_spread(values: list[float]) -> str:
    if not values:
        return "-"
    return f"{fmean(values):.4g}" + (f" ± {stdev(values):.2g}" if len(values) > 1 else "")


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])
