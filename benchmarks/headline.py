"""Measure a method against its baselines and publish the result.

``python -m benchmarks.headline sheaf_admm`` tunes and trains all variants of the method's experiments through ``train.py``, each
with several seeds, and writes ``docs/results/<method>.json``, ``.md`` and ``.png``. Finished runs are not repeated and interrupted
ones go on, so the same command may be given again at any time.
"""

import argparse
import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.calculating import calculate
from benchmarks.experiments import REPOSITORY, Calculation, Experiment, Value, load_experiments, method_names
from benchmarks.jobs import Job
from benchmarks.paired import paired_differences
from benchmarks.planning import Plan
from benchmarks.pool import ClusterExecutor, Executor, LocalExecutor, run_all
from benchmarks.provenance import provenance
from benchmarks.report import describe, draw_figures, markdown
from benchmarks.results import Record, Results
from benchmarks.tuning import best_settings, validation_value

TRAIN = (sys.executable, "train.py")

CURVE_POINTS = 50


def main(arguments: Sequence[str] | None = None, train: Sequence[str] = TRAIN) -> int:
    """Run the command line; return 1 if a run failed."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    parser = _parser()
    options = parser.parse_args(given)
    try:
        experiments = _selected(options)
        results = Results.load(options.results_root / f"{options.method}.json")
        if options.report_only:
            for experiment in experiments:
                if results.of(experiment.name):
                    _publish(experiment, options, results)
            return 0
        plan = _plan(options, train)
        command = shlex.join(["python", "-m", "benchmarks.headline", *given])
        failures = sum(_measure(experiment, plan, options, results, command) for experiment in experiments)
    except ValueError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        print("interrupted: give the same command again to go on", file=sys.stderr)
        return 130
    if failures:
        print(f"{failures} runs failed; give the same command again to repeat only those", file=sys.stderr)
    return 1 if failures else 0


def _measure(experiment: Experiment | Calculation, plan: Plan, options: argparse.Namespace, results: Results, command: str) -> int:
    """Run one experiment and publish it; return the number of failed runs."""
    chosen = plan.chosen(experiment)
    if not chosen:
        return 0
    print(f"{plan.method} {experiment.name}: {', '.join(chosen)}", flush=True)
    notes: dict[str, Any] = {"provenance": provenance(command)}
    if isinstance(experiment, Calculation):
        records, failures = _calculate(experiment, chosen, plan), 0
    else:
        records, failures, notes["tuning"] = _train(experiment, chosen, plan)
    if records:
        measured = {record.variant for record in records}
        _keep_tuning(results.experiments.get(experiment.name, {}).get("tuning"), notes.get("tuning"), chosen)
        results.replace(records, None if measured == set(experiment.titles) else measured)
        results.experiments[experiment.name] = {**results.experiments.get(experiment.name, {}), **notes}
        results.meta = notes["provenance"]
        _publish(experiment, options, results)
    return failures


def _keep_tuning(old: dict[str, Any] | None, new: dict[str, Any] | None, variants: Sequence[str]) -> None:
    """Add to the new notes on tuning the runs of the variants that were not tuned now."""
    if old and new:
        new["runs"] = [run for run in old["runs"] if run["variant"] not in variants] + new["runs"]


def _calculate(calculation: Calculation, variants: Sequence[str], plan: Plan) -> list[Record]:
    """Compute an experiment without runs, on this machine."""
    repetitions = [(variant, seed) for variant in variants for seed in range(1, plan.seeds + 1)]
    folder = REPOSITORY / plan.root / plan.method / calculation.name
    found = calculate(calculation, repetitions, folder, plan.execute.workers or 1, _say)
    records = [
        Record(calculation.name, variant, metric, seed, value, steps=0, seconds=0.0, params=0)
        for (variant, seed), values in found.items()
        for metric, value in values.items()
    ]
    return [*records, *(calculation.summarise(records) if calculation.summarise else ())]


def _train(experiment: Experiment, variants: Sequence[str], plan: Plan) -> tuple[list[Record], int, dict[str, Any] | None]:
    """Tune and train; return the records of all finished runs, the number of failures and the notes on tuning."""
    settings: Mapping[str, Mapping[str, Value]] = {variant: {} for variant in variants}
    failures, notes = 0, None
    if experiment.tuning:
        tried = plan.tuning_jobs(experiment)
        failures += len(run_all(tried, plan.execute, _say))
        settings = best_settings(tried, experiment.tuning)
        runs = [
            {
                "variant": job.variant,
                "setting": dict(job.setting),
                "value": validation_value(job, experiment.tuning),
                "chosen": settings[job.variant] == job.setting,
            }
            for job in tried
            if job.finished()
        ]
        notes = {"metric": experiment.tuning.metric, "steps": plan.tuning_steps(experiment), "runs": runs}
        for variant in settings:
            _say(f"chosen for {variant}: {dict(settings[variant])}")
    jobs = plan.jobs(experiment, settings)
    failures += len(run_all(jobs, plan.execute, _say))
    records = [record for job in jobs if job.finished() for record in records_of(job, experiment)]
    records += paired_differences(jobs, experiment, records)
    recorded = {record.metric.split("_at_")[0] for record in records} | {record.metric for record in records}
    for metric in (*(metric.name for metric in experiment.metrics), *experiment.curve, *experiment.learning_curve):
        if records and metric not in recorded:
            _say(f"no run of {experiment.name} logged {metric}")
    return records, failures, notes


def records_of(job: Job, experiment: Experiment) -> list[Record]:
    """Return what a finished run measured.

    Raises:
        ValueError: if its summary lacks a metric of the experiment that is not optional.
    """
    summary = job.summary()
    curves = {f"{name}_at_{step}": value for name in experiment.learning_curve for step, value in thinned(job.series(name)).items()}
    measured = summary["metrics"] | curves
    rows = list(experiment.rows) or [job.variant]
    needed = [metric.name.replace("{row}", row) for metric in experiment.metrics if not metric.optional for row in rows]
    missing = [name for name in dict.fromkeys(needed) if name not in measured]
    if missing:
        known = ", ".join(sorted(measured))
        raise ValueError(f"run {job.name} did not measure {', '.join(missing)}; it has: {known}")
    cost = (summary["steps"], summary["train_seconds"], summary["parameters"])
    config = "" if experiment.variants[job.variant].overrides else config_name(job.config)
    wanted = dict.fromkeys([*(metric.name for metric in experiment.metrics), *experiment.curve, *curves])
    records = []
    for row in rows:
        values = {name: measured[full] for name in wanted if (full := name.replace("{row}", row)) in measured}
        for name, value in values.items():
            number = math.nan if value is None else value
            records.append(Record(job.experiment, row, name, job.seed, number, *cost, config))
    return records


def thinned(series: Mapping[int, float]) -> dict[int, float]:
    """Return a curve with at most ``CURVE_POINTS`` points, at equal distances, the last one among them."""
    steps = sorted(series)
    distance = -(-len(steps) // CURVE_POINTS) or 1
    return {step: series[step] for step in steps[::-1][::distance][::-1]}


def config_name(path: str) -> str:
    """Return ``method/task`` of a config file."""
    return "/".join(Path(path).with_suffix("").parts[-2:])


def _publish(experiment: Experiment | Calculation, options: argparse.Namespace, results: Results) -> None:
    """Write JSON, report and figures."""
    folder = options.results_root
    known = results.experiments.get(experiment.name, {})
    results.experiments[experiment.name] = {**known, **describe(experiment, options.method)}
    results.save(folder / f"{options.method}.json")
    figures = draw_figures(experiment, options.method, results, folder)
    report = folder / f"{options.method}.md"
    report.write_text(markdown(options.method, results))
    _say(f"wrote {', '.join(path.name for path in (report, *figures))} in {folder}")


def _selected(options: argparse.Namespace) -> list[Experiment | Calculation]:
    """Return the experiments to run; an unknown name is an error."""
    experiments = load_experiments(options.method)
    _refuse_unknown("experiment", options.only, experiments)
    known = [e.variants if isinstance(e, Experiment) else e.titles for e in experiments.values()]
    _refuse_unknown("variant", options.variants, {name for names in known for name in names})
    if options.only:
        return [experiment for name, experiment in experiments.items() if name in options.only]
    return [e for e in experiments.values() if not (isinstance(e, Experiment) and e.on_request)]


def _refuse_unknown(what: str, given: Sequence[str], known: Any) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ValueError(f"unknown {what} {', '.join(unknown)}; there are: {', '.join(sorted(known))}")


def _plan(options: argparse.Namespace, train: Sequence[str]) -> Plan:
    execute: Executor = LocalExecutor(options.jobs)
    if options.slurm:
        parameters = dict(_parameter(text) for text in options.slurm_option)
        execute = ClusterExecutor(REPOSITORY / options.runs_root / "submitit", options.cluster, parameters)
    return Plan(options.method, options.seeds, options.variants, options.steps, options.runs_root, execute, train)


def _parameter(text: str) -> tuple[str, Any]:
    """Read ``name=value`` for submitit."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--slurm-option {text!r} is not name=value, for example slurm_partition=gpu")
    return name, int(value) if value.isdigit() else value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.headline", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("method", help=f"one of: {', '.join(method_names())}")
    parser.add_argument("--seeds", type=_positive, default=3, help="repetitions of every variant (default 3)")
    parser.add_argument("--only", nargs="+", default=[], metavar="EXPERIMENT", help="only these experiments")
    parser.add_argument("--variants", nargs="+", default=[], metavar="VARIANT", help="only these variants")
    parser.add_argument("--steps", type=_positive, help="optimiser steps of a run, in the place of the experiment's own")
    parser.add_argument("--jobs", type=_positive, default=1, metavar="N", help="runs at a time, a core or GPU each")
    parser.add_argument("--slurm", action="store_true", help="hand the runs to a cluster through submitit")
    parser.add_argument("--cluster", choices=("slurm", "local"), default="slurm", help="submitit's executor for --slurm")
    parser.add_argument("--slurm-option", action="append", default=[], metavar="NAME=VALUE", help="slurm_partition=gpu, ...")
    parser.add_argument("--report-only", action="store_true", help="write report and figures again from the JSON")
    parser.add_argument("--runs-root", type=Path, default=Path("runs/headline"), help="folder of the runs")
    parser.add_argument("--results-root", type=Path, default=REPOSITORY / "docs" / "results", help="folder of the results")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not a positive number")
    return number


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
