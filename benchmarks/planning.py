"""Which runs an experiment needs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.experiments import Calculation, Experiment, Value
from benchmarks.jobs import Job
from benchmarks.pool import Executor
from benchmarks.tuning import grid_settings


@dataclass(frozen=True)
class Plan:
    """How the experiments of one method are run.

    Attributes:
        method: name of the method.
        seeds: number of repetitions, numbered from 1.
        variants: the variants to run; empty for all.
        steps: optimiser steps in the place of the experiment's own.
        root: folder of the runs.
        execute: runs the jobs.
        train: command that starts one training run.
    """

    method: str
    seeds: int
    variants: Sequence[str]
    steps: int | None
    root: Path
    execute: Executor
    train: Sequence[str]

    def chosen(self, experiment: Experiment | Calculation) -> list[str]:
        """Return the variants to run and those that they build on, in the order of the experiment."""
        names = list(experiment.variants if isinstance(experiment, Experiment) else experiment.titles)
        wanted = set(self.variants or names)
        if isinstance(experiment, Experiment):
            for name, variant in reversed(list(experiment.variants.items())):
                wanted |= set(variant.after.values()) if name in wanted else set()
        return [name for name in names if name in wanted]

    def jobs(self, experiment: Experiment, settings: Mapping[str, Mapping[str, Value]]) -> list[Job]:
        """Return the final runs of the variants that have a setting."""
        steps = self.steps or experiment.steps
        jobs: dict[tuple[str, int], Job] = {}
        for variant in self.chosen(experiment):
            for seed in range(1, self.seeds + 1) if variant in settings else ():
                after = {option: jobs[other, seed] for option, other in experiment.variants[variant].after.items()}
                jobs[variant, seed] = replace(self._job(experiment, variant, seed, steps, settings[variant]), after=after)
        return list(jobs.values())

    def tuning_jobs(self, experiment: Experiment) -> list[Job]:
        """Return the runs of the grid search."""
        tuning = experiment.tuning
        if tuning is None:
            return []
        return [
            self._job(experiment, variant, tuning.seed, self.tuning_steps(experiment), setting, f"tuning_{number}")
            for variant in self.chosen(experiment)
            for number, setting in enumerate(grid_settings(tuning), start=1)
        ]

    def tuning_steps(self, experiment: Experiment) -> int:
        """Return the steps of a tuning run."""
        share = experiment.tuning.share if experiment.tuning else 1.0
        return max(1, round((self.steps or experiment.steps) * share))

    def _job(
        self, experiment: Experiment, variant: str, seed: int, steps: int, setting: Mapping[str, Value], label: str = ""
    ) -> Job:
        """Return one run; a tuned setting wins over the variant's own options, and those over the experiment's."""
        chosen = experiment.variants[variant]
        options = {
            **experiment.overrides,
            **chosen.overrides,
            **({} if chosen.own_steps else {experiment.steps_option: steps}),
            **({"trainer.limit_test_batches": 0} if label else {}),  # tuning looks at validation data only
            **setting,
            **dict.fromkeys(experiment.seed_options, seed),
        }
        label = f"{self.method}/{experiment.name}/{variant}/{label or f'seed_{seed}'}"
        return Job(experiment.name, variant, seed, label, chosen.config, options, self.root, tuple(self.train), setting)
