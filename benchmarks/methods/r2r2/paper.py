"""The paper's grid for a cluster: eleven tasks, five agents, one and 20 updates a step; 110 runs of a seed, a GPU each."""

from benchmarks.experiments import Experiment, Metric, Value, Variant

GYM = ("Hopper-v5", "Walker2d-v5", "Ant-v5", "Humanoid-v5")
DMC = ("humanoid-stand", "humanoid-walk", "humanoid-run", "dog-stand", "dog-walk", "dog-run", "dog-trot")
DECISIONS = 500_000


def task(name: str) -> Experiment:
    """One task; in the DeepMind Control suite a decision lasts two frames, and episodes never end early."""
    is_gym = name in GYM
    data: dict[str, Value] = {"env": f"gym:{name}"} if is_gym else {"env": f"dmc:{name}", "action_repeat": 2}
    return Experiment(
        name=f"paper_{name.lower().replace('-', '_')}",
        title=f"{name}, {DECISIONS:,} steps".replace(",", " "),
        description="The published settings, the same for all tasks. The best of the evaluations is tested.",
        variants=variants(is_gym),
        metrics=(
            Metric("test/return_mean", "return"),
            Metric("test/return_mean", "the same", interval="iqm"),
        ),
        steps=DECISIONS,
        steps_option="data.init_args.total_env_steps",
        overrides={f"data.init_args.{key}": value for key, value in data.items()},
        seed_options=("seed_everything", "data.init_args.seed"),
        learning_curve=("val/return_mean",),
        on_request=True,
    )


def variants(is_gym: bool) -> dict[str, Variant]:
    """All agents with one update a step and with 20."""
    simba: dict[str, Value] = {} if is_gym else {"num_critics": 1, "discount": 0.99}
    arms: dict[str, tuple[str, str, dict[str, Value]]] = {
        "td7": ("TD7", "td7_humanoid_paper", {"regularizer": None}),
        "td7_r2r2": ("TD7+R2R2", "td7_humanoid_paper", {}),
        "simba": ("SimbaV2", "simba_spl_r2r2_humanoid_paper", {**simba, "spl": False, "regularizer": None}),
        "simba_spl": ("SimbaV2-SPL", "simba_spl_r2r2_humanoid_paper", {**simba, "regularizer": None}),
        "simba_spl_r2r2": ("SimbaV2-SPL+R2R2", "simba_spl_r2r2_humanoid_paper", simba),
    }
    return {
        f"{name}_utd{utd}": Variant(f"{title}, UTD {utd}", f"configs/r2r2/{config}.yaml", model_options(**options, utd=utd))
        for utd in (1, 20)
        for name, (title, config, options) in arms.items()
    }


def model_options(**options: Value) -> dict[str, Value]:
    return {f"model.init_args.{name}": value for name, value in options.items()}


EXPERIMENTS = tuple(task(name) for name in (*GYM, *DMC))
