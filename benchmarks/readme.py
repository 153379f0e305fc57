"""Write the result tables of README and of the method cards from ``docs/results/*.json``: ``python -m benchmarks.readme``."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.experiments import REPOSITORY
from benchmarks.report import results_table
from benchmarks.results import Results
from benchmarks.speed_results import SpeedResults, speed_table

BEGIN, END = "<!-- results -->", "<!-- /results -->"


def results_section(folder: Path, method: str | None = None) -> str:
    """Return what README says about the results in ``folder``, or what the card of one method says.

    README shows the headline experiments of all methods, a card all experiments of its method but details, and its speed.
    """
    parts = []
    for path in sorted(folder.glob(f"{method or '*'}.json")):
        if path.name != "speed.json":
            parts += _tables(Results.load(path), title_prefix="" if method else f"{path.stem}: ", headlines_only=method is None)
    if parts:
        parts.insert(0, "Mean ± standard error over runs with different seeds.")
    speed = [row for row in SpeedResults.load(folder / "speed.json").rows if row.method == (method or "launcher")]
    if speed:
        parts += ["Time beside a peer on the same machine (below 1: faster than the peer):", speed_table(speed)]
    return "\n\n".join(parts or ["No results have been measured yet."])


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


def _tables(results: Results, title_prefix: str, headlines_only: bool) -> list[str]:
    """Return a title and a table for each measured experiment."""
    parts = []
    for name, experiment in results.experiments.items():
        records = results.of(name)
        shown = experiment.get("headline", True) if headlines_only else not experiment.get("detail", False)
        if records and shown:
            parts += [f"**{title_prefix}{experiment['title']}**", results_table(experiment, records)]
    return parts


def main(arguments: Sequence[str] | None = None) -> int:
    """Rewrite README and the cards; with ``--check`` only say whether they are up to date."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.readme", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit status 1 if a page is out of date")
    parser.add_argument("--readme", type=Path, default=REPOSITORY / "README.md")
    parser.add_argument("--cards", type=Path, default=REPOSITORY / "lightning_modules", help="folder of the methods")
    parser.add_argument("--results-root", type=Path, default=REPOSITORY / "docs" / "results")
    options = parser.parse_args(arguments)
    pages = {options.readme: None} | {card: card.parent.name for card in sorted(options.cards.glob("*/README.md"))}
    outdated = 0
    try:
        for page, method in pages.items():
            old = page.read_text()
            new = with_results(old, results_section(options.results_root, method))
            outdated += new != old
            if new != old and options.check:
                print(f"{page} is out of date: run python -m benchmarks.readme", file=sys.stderr)
            elif new != old:
                page.write_text(new)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    return int(options.check and outdated > 0)


if __name__ == "__main__":
    sys.exit(main())
