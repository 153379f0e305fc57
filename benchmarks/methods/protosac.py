"""ProtoSAC beside the black box that it opens, and beside prototypes found afterwards."""

from functools import partial
from typing import Any

from benchmarks.calculations.peer_return import peer_return
from benchmarks.calculations.replay_memory import FIELDS, replay_megabytes
from benchmarks.experiments import Calculation, Experiment, FigureSpec, Metric, Value, Variant
from benchmarks.figures import learning_curve_figure

REPORT = '{"class_path": "callbacks.PrototypeReport"}'
GROUNDED_ONCE = f'[{{"class_path": "callbacks.PrototypeGrounding", "init_args": {{"every_env_steps": 1000000}}}}, {REPORT}]'
MEASURES = {
    "test/return_top5": "top 5 act",
    "test/return_top3": "top 3 act",
    "test/return_top1": "top 1 acts",
    "test/effective_prototypes": "effective prototypes",
    "test/prototypes_used": "used",
    "test/explanation_stability": "stability",
    "test/drift": "drift",
}
SHARES = ("test/prototypes_used", "test/explanation_stability")
SAME_FOR_ALL: dict[str, Any] = {
    "steps_option": "data.init_args.total_env_steps",
    "seed_options": ("seed_everything", "data.init_args.seed"),
    "curve": tuple(MEASURES),
    "learning_curve": ("val/return_mean",),
}
RETURNS = (
    Metric("test/return_mean", "return of 20 test episodes"),
    Metric("test/return_mean", "the same", interval="iqm"),
)
PROTOCOL = (
    "Equal steps, batches, widths and learning rates for all, none of them tuned. The checkpoint with the best mean return of ten "
    "evaluation episodes is tested on 20 others; the episodes of a seed are the same for all. ProtoSAC is evaluated with every "
    "prototype on the embedding of its state."
)


def learning(name: str) -> FigureSpec:
    draw = partial(learning_curve_figure, metric="val/return_mean", x_label="environment steps", y_label="return of 10 episodes")
    return FigureSpec(f"{name}_learning", "Return of the evaluation episodes while the agents learn.", draw)


def beside_sac(name: str, task: str, title: str, steps: int, **overrides: Value) -> Experiment:
    """SAC and ProtoSAC on one task, each with its config."""
    return Experiment(
        name=name,
        title=title,
        description=PROTOCOL,
        variants={
            "sac": Variant("SAC", f"configs/sac/{task}.yaml"),
            "protosac": Variant("ProtoSAC", f"configs/protosac/{task}.yaml"),
        },
        metrics=RETURNS,
        steps=steps,
        overrides={f"data.init_args.{key}": value for key, value in overrides.items()},
        figures=(learning(name),),
        **SAME_FOR_ALL,
    )


def afterwards(title: str, name: str) -> Variant:
    """Prototypes made from the SAC agent of the same seed."""
    return Variant(title, f"configs/protosac/pendulum_{name}.yaml", after={"model.init_args.teacher": "sac"}, own_steps=True)


def switched(title: str, **options: Value) -> Variant:
    """ProtoSAC on the pendulum with other settings."""
    return Variant(title, "configs/protosac/pendulum.yaml", {f"model.init_args.{key}": value for key, value in options.items()})


def grounded_once(title: str) -> Variant:
    return Variant(title, "configs/protosac/pendulum.yaml", {"trainer.callbacks": GROUNDED_ONCE})


PENDULUM = Experiment(
    name="pendulum",
    title="Pendulum-v1 after 5 000 steps",
    description=(
        PROTOCOL + " PW-Net*, Shared-PW-Net and k-means imitate the SAC agent of the same seed on 5 000 states of its episodes, "
        "also with 16 prototypes."
    ),
    variants={
        "sac": Variant("SAC", "configs/sac/pendulum.yaml"),
        "protosac": Variant("ProtoSAC, 16 prototypes", "configs/protosac/pendulum.yaml"),
        "protosac_once": Variant(
            "ProtoSAC, grounded at the start and the end only",
            "configs/protosac/pendulum.yaml",
            {"trainer.callbacks": GROUNDED_ONCE},
        ),
        "pwnet": afterwards("PW-Net* of SAC", "pwnet"),
        "shared_pwnet": afterwards("Shared-PW-Net of SAC", "shared_pwnet"),
        "kmeans": afterwards("k-means of SAC", "kmeans"),
    },
    metrics=RETURNS,
    steps=5_000,
    figures=(learning("pendulum"),),
    **SAME_FOR_ALL,
)

SWITCHES = Experiment(
    name="switches",
    title="Pendulum-v1: what the switches of ProtoSAC do to return and legibility",
    description=(
        "ProtoSAC with 16 prototypes and one thing changed at a time, 5 000 steps. Return when only the most similar prototypes of "
        "each state act; on how many prototypes a decision leans, exp H(w); share of prototypes with a mean weight above 1 %; "
        "overlap (Jaccard) of the three heaviest prototypes of a state with and without noise of 1 %; largest distance from a "
        "prototype to the embedding of its state when training ended."
    ),
    variants={
        "protosac": switched("as it is"),
        "no_orthogonality": switched("without L_orth", orthogonality=0.0),
        "no_entropy": switched("without L_ent", negative_entropy=0.0),
        "once": grounded_once("grounded at the start and the end only"),
        "k4": switched("4 prototypes", num_prototypes=4),
        "k8": switched("8 prototypes", num_prototypes=8),
        "k32": switched("32 prototypes", num_prototypes=32),
        "k64": switched("64 prototypes", num_prototypes=64),
        "mixture": switched("mixture instead of blend", mixing="mixture", top_m=4),
        "unclipped": switched("gradients of the actor not shortened", max_actor_grad_norm=None),
        "cosine": switched("cosine similarity", similarity="cosine"),
        "reseed": switched("dead prototypes are reseeded", reseed_dead=True),
    },
    metrics=(
        Metric("test/return_mean", "all act"),
        *(Metric(name, title, percent=name in SHARES) for name, title in MEASURES.items()),
    ),
    steps=5_000,
    **SAME_FOR_ALL,
)

PEER = Calculation(
    name="peer",
    title="SAC of stable-baselines3 on Pendulum-v1 after 5 000 steps",
    description="Settings, environments, evaluations and test of `configs/sac/pendulum.yaml`, for comparison with our SAC above.",
    titles={"pendulum": "SAC of stable-baselines3"},
    metrics=RETURNS,
    compute=peer_return,
)

REPLAY = Calculation(
    name="replay_memory",
    title="Memory of a replay of a million transitions",
    description="Megabytes of a real replay, which reserves its memory at once, by field.",
    titles={
        f"gym:{env}": env for env in ("Pendulum-v1", "InvertedPendulum-v5", "Hopper-v5", "HalfCheetah-v5", "Ant-v5", "Humanoid-v5")
    },
    metrics=(Metric("total", "total (MB)"), *(Metric(field, f"{field} (MB)") for field in FIELDS)),
    compute=replay_megabytes,
)

EXPERIMENTS = (
    PENDULUM,
    beside_sac("pendulum_longer", "pendulum", "Pendulum-v1 after 10 000 steps", 10_000, replay_capacity=10_000),
    beside_sac("inverted_pendulum", "inverted_pendulum", "InvertedPendulum-v5 after 20 000 steps", 20_000),
    beside_sac("finger_spin", "finger_spin", "finger-spin of the DeepMind control suite after 50 000 decisions", 50_000),
    SWITCHES,
    PEER,
    REPLAY,
)
