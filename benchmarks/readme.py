"""Write what pages say about results from ``docs/results``: ``python -m benchmarks.readme``.

README gets the table of claims, each method card the tables of its method, and ``docs/findings.md`` and ``docs/gallery.md`` are
written whole.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.claims import MethodClaims, claims_table, findings_page, gallery_page, load_claims
from benchmarks.experiments import REPOSITORY
from benchmarks.report import results_table
from benchmarks.results import Results
from benchmarks.speed_results import SpeedResults, speed_table

BEGIN, END = "<!-- results -->", "<!-- /results -->"


def results_section(folder: Path, method: str) -> str:
    """Return what the card of a method says about the results in ``folder``: all experiments but details, and speed."""
    file = folder / f"{method}.json"
    tables = _tables(Results.load(file)) if file.exists() else []
    parts = ["Mean ± standard error over runs with different seeds.", *tables] if tables else []
    return "\n\n".join([*parts, *_speed(folder, method)] or ["No results have been measured yet."])


def overview(folder: Path, methods: Sequence[MethodClaims]) -> str:
    """Return what README says about the results in ``folder``: the claims of all methods, and the speed of the launcher."""
    parts = ["Mean ± standard error over runs with different seeds; [findings](docs/findings.md) says what a verdict means."]
    return "\n\n".join([*parts, claims_table(folder, methods), *_speed(folder, "launcher")])


def _speed(folder: Path, method: str) -> list[str]:
    rows = [row for row in SpeedResults.load(folder / "speed.json").rows if row.method == method]
    return ["Time beside a peer on the same machine (below 1: faster than the peer):", speed_table(rows)] if rows else []


def with_results(readme: str, section: str) -> str:
    """Return ``readme`` with ``section`` between the two markers.

    Raises:
        ValueError: if the markers are not there once each, in order.
    """
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in before + after:
        raise ValueError(f"README needs one line {BEGIN} and after it one line {END}: the tables go between them")
    return f"{before}{BEGIN}\n\n{section}\n\n{END}{after}"


def _tables(results: Results) -> list[str]:
    """Return a title and a table for each measured experiment."""
    parts = []
    for name, experiment in results.experiments.items():
        records = results.of(name)
        if records and not experiment.get("detail", False):
            parts += [f"**{experiment['title']}**", results_table(experiment, records)]
    return parts


def main(arguments: Sequence[str] | None = None) -> int:
    """Rewrite the pages; with ``--check`` only say whether they are up to date."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.readme", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit status 1 if a page is out of date")
    parser.add_argument("--root", type=Path, default=REPOSITORY, help="folder of README.md, docs and lightning_modules")
    options = parser.parse_args(arguments)
    outdated = 0
    try:
        for page, text in _pages(options.root).items():
            if page.exists() and page.read_text() == text:
                continue
            outdated += 1
            if options.check:
                print(f"{page} is out of date: run python -m benchmarks.readme", file=sys.stderr)
            else:
                page.write_text(text)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    return int(options.check and outdated > 0)


def _pages(root: Path) -> dict[Path, str]:
    """Return what each page should say."""
    docs, readme, methods = root / "docs", root / "README.md", load_claims(root / "benchmarks" / "claims.yaml")
    folder = docs / "results"
    pages = {
        readme: with_results(readme.read_text(), overview(folder, methods)),
        docs / "findings.md": findings_page(folder, methods),
        docs / "gallery.md": gallery_page(folder, methods),
    }
    for card in sorted(root.glob("lightning_modules/*/README.md")):
        pages[card] = with_results(card.read_text(), results_section(folder, card.parent.name))
    return pages


if __name__ == "__main__":
    sys.exit(main())
