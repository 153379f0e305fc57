"""What papers claim and what was measured here: README's table, ``docs/findings.md`` and ``docs/gallery.md``."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from benchmarks.experiments import REPOSITORY
from benchmarks.report import format_runs, table
from benchmarks.results import Aggregate, Results, aggregate, by_variant

FILE = REPOSITORY / "benchmarks" / "claims.yaml"
SURE = 2.0
"""Standard errors of a difference beyond which it counts."""

Verdict = Literal["holds", "not contradicted", "not seen", "does not hold", "not tested here"]


@dataclass(frozen=True)
class Claim:
    """A claim of a paper and the measurement that bears on it; ``benchmarks/claims.yaml`` says what the fields are."""

    says: str
    task: str
    experiment: str = ""
    metric: str = ""
    ours: str = ""
    others: Sequence[str] = ()
    expected: Literal["better", "equal"] = "better"
    lower: bool = False
    note: str = ""


@dataclass(frozen=True)
class Finding:
    """A claim with its measurement: ours and the best of the others, as they are written and titled, and the verdict."""

    claim: Claim
    verdict: Verdict
    ours: str = ""
    best: str = ""
    ours_title: str = ""
    best_title: str = ""


@dataclass(frozen=True)
class MethodClaims:
    """Name, title, claims and the one figure of a method."""

    name: str
    title: str
    figure: str
    claims: Sequence[Claim]


def load_claims(file: Path = FILE) -> list[MethodClaims]:
    """Read the claims of all methods.

    Raises:
        ValueError: if a claim has a field that claims do not have, or lacks one.
    """
    found = []
    for name, content in yaml.safe_load(file.read_text()).items():
        try:
            claims = [Claim(**claim) for claim in content["claims"]]
            found.append(MethodClaims(name, content["title"], content["figure"], claims))
        except (TypeError, KeyError) as error:
            raise ValueError(f"{file}, {name}: {error}") from error
    return found


def find(claim: Claim, results: Results) -> Finding:
    """Judge a claim by the records.

    Raises:
        ValueError: if the records lack what the claim names.
    """
    if not claim.experiment:
        return Finding(claim, "not tested here")
    experiment = results.experiments.get(claim.experiment)
    measured = by_variant(results.of(claim.experiment), claim.metric)
    missing = [variant for variant in (claim.ours, *claim.others) if variant not in measured]
    if experiment is None or missing:
        raise ValueError(f"“{claim.says}” ({claim.task}): {claim.experiment} has no {claim.metric} of {', '.join(missing)}")
    sign = -1 if claim.lower else 1
    best = max(claim.others, key=lambda variant: sign * aggregate(measured[variant]).mean)
    column: dict[str, Any] = next((column for column in experiment["columns"] if column["metric"] == claim.metric), {})
    written = [format_runs(measured[variant], column.get("percent", False)) for variant in (claim.ours, best)]
    verdict = _verdict(aggregate(measured[claim.ours]), aggregate(measured[best]), sign, claim.expected)
    titles = experiment["variants"]
    unit = " %" if column.get("percent") else ""
    return Finding(claim, verdict, written[0] + unit, written[1] + unit, titles[claim.ours], titles[best])


def findings(folder: Path, methods: Sequence[MethodClaims]) -> dict[str, list[Finding]]:
    """Judge all claims of the methods by the results in a folder; a method without results has none."""
    found = {}
    for method in methods:
        file = folder / f"{method.name}.json"
        if file.exists():
            results = Results.load(file)
            found[method.name] = [find(claim, results) for claim in method.claims]
    return found


def claims_table(folder: Path, methods: Sequence[MethodClaims]) -> str:
    """Return README's table: a row for each claim."""
    titles = {method.name: method.title for method in methods}
    rows = [
        [
            f"[{titles[name]}](docs/findings.md#{_anchor(titles[name])})",
            finding.claim.says,
            finding.claim.task,
            _named(finding.ours, finding.ours_title),
            _named(finding.best, finding.best_title),
            f"**{finding.verdict}**" if finding.verdict == "holds" else finding.verdict,
            _command(name, finding.claim),
        ]
        for name, found in findings(folder, methods).items()
        for finding in found
    ]
    header = ["method", "the paper says", "measured here", "ours", "best of the others", "verdict", "command"]
    return table(header, rows, left=len(header))


def findings_page(folder: Path, methods: Sequence[MethodClaims]) -> str:
    """Return ``docs/findings.md``."""
    titles = {method.name: method.title for method in methods}
    found = findings(folder, methods)
    everything = [finding for own in found.values() for finding in own]
    counts = {verdict: sum(finding.verdict == verdict for finding in everything) for verdict in get_args(Verdict)}
    parts = [
        "# Findings",
        "What the papers claim, and what small experiments here show of it. Written by `python -m benchmarks.readme` from "
        "`benchmarks/claims.yaml` and `docs/results`; do not edit.",
        f"A claim of being better **holds** where the mean over seeds is better than the best of the others by more than {SURE:g} "
        "standard errors of the difference, **does not hold** where it is worse by as much, and is **not seen** in between; a "
        "claim of being equal is **not contradicted** there. The experiments are far smaller than the papers': what is not seen "
        "here may hold at their scale.",
        "Of {} claims: {}.".format(len(everything), ", ".join(f"{number} {verdict}" for verdict, number in counts.items())),
    ]
    for name, own in found.items():
        parts += [f"## {titles[name]}", "\n".join(_line(finding) for finding in own)]
        parts.append(f"[Method card](../lightning_modules/{name}/README.md), [all tables](results/{name}.md).")
    return "\n\n".join(parts) + "\n"


def gallery_page(folder: Path, methods: Sequence[MethodClaims]) -> str:
    """Return ``docs/gallery.md``: a figure of each method whose figure is there."""
    parts = ["# Gallery", "A figure a method; [all results](results)."]
    for method in methods:
        if (folder / method.figure).exists():
            card = f"../lightning_modules/{method.name}/README.md"
            parts += [f"## {method.title}", f"[![{method.title}](results/{method.figure})]({card})"]
    return "\n\n".join(parts) + "\n"


def _verdict(ours: Aggregate, best: Aggregate, sign: int, expected: str) -> Verdict:
    difference = sign * (ours.mean - best.mean)
    error = SURE * math.hypot(ours.standard_error or 0.0, best.standard_error or 0.0)
    if expected == "equal":
        return "not contradicted" if abs(difference) <= error else "does not hold"
    if difference > error:
        return "holds"
    return "does not hold" if difference < -error else "not seen"


def _named(value: str, title: str) -> str:
    return f"{title}: {value}" if value else "–"


def _command(method: str, claim: Claim) -> str:
    return f"`python -m benchmarks.headline {method} --only {claim.experiment}`" if claim.experiment else "–"


def _line(finding: Finding) -> str:
    claim = finding.claim
    measured = f": {finding.ours_title} {finding.ours}, {finding.best_title} {finding.best}" if finding.ours else ""
    note = f" {claim.note}" if claim.note else ""
    return f"- *{_sentence(claim.says)}*: **{finding.verdict}**. {_sentence(claim.task)}{measured}.{note}"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")
