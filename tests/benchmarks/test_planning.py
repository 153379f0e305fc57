from pathlib import Path

from benchmarks.experiments import Experiment, Metric, Variant
from benchmarks.planning import Plan
from benchmarks.pool import LocalExecutor


def test_steps_go_to_the_option_of_the_experiment():
    experiment = Experiment(
        name="pendulum",
        title="",
        description="",
        variants={"sac": Variant("SAC", "configs/sac/pendulum.yaml")},
        metrics=(Metric("test/return_mean", "return"),),
        steps=5_000,
        steps_option="data.init_args.total_env_steps",
    )
    plan = Plan("protosac", 1, (), None, Path("runs"), LocalExecutor(1), ("python", "train.py"))
    (job,) = plan.jobs(experiment, {"sac": {}})
    assert job.options["data.init_args.total_env_steps"] == 5_000
    assert "trainer.max_steps" not in job.options
