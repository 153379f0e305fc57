"""What a headline experiment consists of, as data; ``benchmarks/methods/<method>.py`` lists those of a method."""

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from benchmarks.results import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REPOSITORY = Path(__file__).resolve().parents[1]

Value = str | int | float | bool | None | Sequence[float] | Sequence[str]
"""A value that can be written behind a command-line option of ``train.py``."""


@dataclass(frozen=True)
class Metric:
    """A measured number: its name in ``summary.json`` and its heading in a table.

    Attributes:
        name: name in ``summary.json``.
        title: heading of the column.
        percent: whether it is a share.
        interval: show the mean ± its standard error or ± the standard deviation of a run, or the mean or interquartile mean with
            its 95 % bootstrap interval.
        optional: whether a variant may lack it.
    """

    name: str
    title: str
    percent: bool = False
    interval: Literal["standard_error", "standard_deviation", "bootstrap", "iqm", "paired"] = "standard_error"
    optional: bool = False


@dataclass(frozen=True)
class PairedRatio:
    """A ratio of sums over test samples, compared with that of another variant on the same samples, see ``benchmarks.paired``.

    Attributes:
        name: name of the difference in the records.
        title: heading of the column.
        suite: test set.
        numerator, denominator: outcomes that ``callbacks.TestOutcomes`` kept.
        against: the other variant.
        percent: whether it is a share.
    """

    name: str
    title: str
    suite: str
    numerator: str
    denominator: str
    against: str
    percent: bool = True


@dataclass(frozen=True)
class FigureSpec:
    """A figure drawn from the records of one experiment.

    Attributes:
        name: ends the file name, ``docs/results/<method>_<name>.png``.
        caption: the one thing that the figure shows.
        draw: takes the records and the titles of the variants.
    """

    name: str
    caption: str
    draw: Callable[[Sequence[Record], Mapping[str, str]], "Figure"]


@dataclass(frozen=True)
class Variant:
    """One competitor of an experiment: a config file and what is changed in it.

    Attributes:
        title: name in tables and figures.
        config: config file, relative to the repository.
        overrides: options of ``train.py`` and their values.
        after: options whose value is the run folder of another variant with the same seed, by the name of that variant, which
            stands earlier in the experiment. The run waits for that one.
        own_steps: train as long as the config says, not for the experiment's steps.
    """

    title: str
    config: str
    overrides: Mapping[str, Value] = field(default_factory=dict)
    after: Mapping[str, str] = field(default_factory=dict)
    own_steps: bool = False


@dataclass(frozen=True)
class Tuning:
    """A grid search on validation data that every variant goes through alike, with one seed.

    Attributes:
        grid: values to try for each option; all combinations are run.
        metric: logged validation metric; its best value in a run counts, as the best checkpoint is what is tested.
        mode: whether a large or a small metric is good.
        share: part of the experiment's steps that a tuning run gets.
        seed: seed of the tuning runs; the final runs use 1, 2, ...
    """

    grid: Mapping[str, Sequence[Value]]
    metric: str
    mode: Literal["max", "min"] = "max"
    share: float = 1 / 3
    seed: int = 0


@dataclass(frozen=True)
class Experiment:
    """Variants trained for equally many steps on the same data.

    Attributes:
        name: short name, used in files and run folders.
        title: heading in the report.
        description: what is compared and how, for the report.
        variants: the competitors by name.
        metrics: columns of the table; the first one is shown in README.
        steps: optimiser steps (for reinforcement learning: environment steps) of a final run.
        overrides: options that all variants share. They must fix which data there are.
        curve: further metric names to record, for figures; a variant may lack some.
        learning_curve: logged metrics recorded as ``<metric>_at_<step>``, at 50 steps at most; a variant may lack some.
        tuning: search done for every variant before the final runs.
        paired: comparisons on the same test samples, further columns of the table.
        figures: what to draw.
        steps_option: option that receives the number of steps.
        seed_options: options that receive the number of the repetition.
        on_request: run it only where ``--only`` names it, as a laptop cannot.
        rows: what each run of the only variant compares inside itself: rows of the table by name, with their titles. ``{row}`` in
            the name of a metric stands for the name.

    Raises:
        ValueError: if a variant runs after one that does not stand before it, or after any in an experiment with tuning, or there
            are rows and several variants.
    """

    name: str
    title: str
    description: str
    variants: Mapping[str, Variant]
    metrics: Sequence[Metric]
    steps: int
    overrides: Mapping[str, Value] = field(default_factory=dict)
    curve: Sequence[str] = ()
    learning_curve: Sequence[str] = ()
    tuning: Tuning | None = None
    paired: Sequence[PairedRatio] = ()
    figures: Sequence[FigureSpec] = ()
    steps_option: str = "trainer.max_steps"
    seed_options: Sequence[str] = ("seed_everything",)
    on_request: bool = False
    rows: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.rows and len(self.variants) != 1:
            raise ValueError(f"{self.name}: rows are measured by one variant, not by {', '.join(self.variants)}")
        for position, (name, variant) in enumerate(self.variants.items()):
            late = [other for other in variant.after.values() if other not in list(self.variants)[:position]]
            if late:
                raise ValueError(f"{self.name}: {name} runs after {', '.join(late)}, which must stand before it in variants")
            if variant.after and self.tuning:
                raise ValueError(f"{self.name}: {name} runs after another variant, which has no tuning runs: leave tuning out")

    @property
    def titles(self) -> dict[str, str]:
        """Titles of what the table compares, by name: the rows or else the variants."""
        return dict(self.rows) or {name: variant.title for name, variant in self.variants.items()}


@dataclass(frozen=True)
class Calculation:
    """An experiment without runs of ``train.py``: ``compute(variant, seed)`` returns the measured numbers by metric name.

    A long one is ``resumable``: it keeps what it has computed beside the runs, goes on there, and computes several at a time.
    ``summarise`` adds records that only all repetitions together can give, such as those of a setting chosen on validation data.
    A ``detail`` stands in ``docs/results`` alone, as another calculation sums it up.
    """

    name: str
    title: str
    description: str
    titles: Mapping[str, str]
    metrics: Sequence[Metric]
    compute: Callable[[str, int], Mapping[str, float]]
    figures: Sequence[FigureSpec] = ()
    resumable: bool = False
    detail: bool = False
    summarise: Callable[[Sequence[Record]], Sequence[Record]] | None = None


def method_names() -> list[str]:
    """Methods that have headline experiments."""
    from benchmarks import methods

    return sorted(module.name for module in pkgutil.iter_modules(methods.__path__))


def load_experiments(method: str) -> dict[str, Experiment | Calculation]:
    """Return the experiments of ``method`` by name.

    Raises:
        ValueError: if the method has none.
    """
    if method not in method_names():
        raise ValueError(f"no headline experiments for {method!r}; there are some for: {', '.join(method_names())}")
    module = importlib.import_module(f"benchmarks.methods.{method}")
    return {experiment.name: experiment for experiment in module.EXPERIMENTS}
