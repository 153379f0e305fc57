"""ProtoSAC beside the black box that it opens."""

from benchmarks.experiments import Experiment, Metric, Variant

ONCE = '[{"class_path": "callbacks.PrototypeGrounding", "init_args": {"every_env_steps": 1000000}}]'

PENDULUM = Experiment(
    name="pendulum",
    title="Pendulum-v1 after 5 000 steps",
    description=(
        "Equal steps, batches, widths and learning rate (0.001, not tuned) for all. The checkpoint with the best mean return of "
        "ten evaluation episodes is tested on 20 others; the episodes of a seed are the same for all. ProtoSAC is evaluated with "
        "every prototype on the embedding of its state."
    ),
    variants={
        "sac": Variant("SAC", "configs/sac/pendulum.yaml"),
        "protosac": Variant("ProtoSAC, 16 prototypes", "configs/protosac/pendulum.yaml"),
        "protosac_once": Variant(
            "ProtoSAC, grounded at the start and the end only", "configs/protosac/pendulum.yaml", {"trainer.callbacks": ONCE}
        ),
    },
    metrics=(Metric("test/return_mean", "return of 20 test episodes"),),
    steps=5_000,
    steps_option="data.init_args.total_env_steps",
    seed_options=("seed_everything", "data.init_args.seed"),
)

EXPERIMENTS = (PENDULUM,)
