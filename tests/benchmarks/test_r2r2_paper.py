"""The grid for a cluster: all of it, on settings that its modules have, and never by accident."""

import inspect
import re
from pathlib import Path

import yaml

import datamodules
import lightning_modules
from benchmarks import headline
from benchmarks.experiments import REPOSITORY, Experiment, load_experiments
from benchmarks.planning import Plan
from benchmarks.pool import LocalExecutor

GRID = {name: e for name, e in load_experiments("r2r2").items() if name.startswith("paper_") and isinstance(e, Experiment)}


def test_eleven_tasks_with_five_agents_at_two_ratios():
    plan = Plan("r2r2", 5, (), None, Path("runs"), LocalExecutor(1), ("python", "train.py"))
    jobs = [job for experiment in GRID.values() for job in plan.jobs(experiment, dict.fromkeys(experiment.variants, {}))]
    assert len(GRID) == 11
    assert len({tuple(sorted(map(str, job.options.items()))) + (job.config,) for job in jobs}) == 11 * 10 * 5
    assert {job.options["model.init_args.utd"] for job in jobs} == {1, 20}
    assert {job.options.get("data.init_args.action_repeat", 1) for job in jobs} == {1, 2}


def test_modules_know_every_option():
    for experiment in GRID.values():
        for variant in experiment.variants.values():
            config = yaml.safe_load((REPOSITORY / variant.config).read_text())
            for option in {**experiment.overrides, **variant.overrides}:
                part, _, name = option.split(".")
                room = lightning_modules if part == "model" else datamodules
                cls = getattr(room, config[part]["class_path"].split(".")[1])
                known = {key for base in cls.__mro__ for key in inspect.signature(base.__init__).parameters}
                assert name in known, (option, cls)


def test_the_launch_script_names_all_tasks():
    script = (REPOSITORY / "configs" / "sweeps" / "r2r2_paper.sh").read_text()
    tasks = re.search(r"tasks=\((.*?)\)", script)
    assert tasks is not None
    assert {f"paper_{task}" for task in tasks[1].split()} == set(GRID)


def test_it_runs_only_where_it_is_named():
    options = headline._parser().parse_args(["r2r2"])
    assert not {experiment.name for experiment in headline._selected(options)} & set(GRID)
    named = headline._parser().parse_args(["r2r2", "--only", "paper_dog_trot"])
    assert [experiment.name for experiment in headline._selected(named)] == ["paper_dog_trot"]
