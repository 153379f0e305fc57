"""Keeping a small vision-language model from naming what is not there, by different methods and strengths."""

from benchmarks.experiments import Experiment, FigureSpec, Metric, PairedRatio, Value, Variant
from benchmarks.methods.tlvs.figures import trade_off_figure, yes_figure

STRENGTHS = (0.5, 2.0, 4.0)
RECALL, HALLUCINATION = "recall", "chair_i"


def steered(title: str, **options: Value) -> Variant:
    """A method on the model that was trained with the same seed; without ``lr`` it is calibrated."""
    overrides = {f"model.init_args.{name}": value for name, value in options.items()}
    return Variant(title, "configs/tlvs/scenes.yaml", overrides, after={"model.init_args.weights": "vlm"})


def fixed(title: str, **options: Value) -> Variant:
    """A method without calibration, tested with several strengths."""
    return steered(title, lr=0.0, sweep=STRENGTHS, **options)


def biased() -> Variant:
    variant = steered("TLVS, calibrated on images like those of the training", sweep=(0.5,))
    return Variant(variant.title, variant.config, {**variant.overrides, "data.init_args.p_comp": 0.9}, variant.after)


def against_greedy(name: str, title: str, suite: str, numerator: str, denominator: str) -> PairedRatio:
    return PairedRatio(f"greedy/{name}", f"{title}, minus greedy", suite, numerator, denominator, against="greedy")


SCENES = Experiment(
    name="scenes",
    title="Captions and questions about scenes with misleading habits",
    description=(
        "A model of 0.2 M parameters learns from scenes where a companion is nearly always beside its anchor; it is tested on "
        "1 000 balanced images, where it is there half of the time. Each seed trains a model, and all methods steer that model. "
        "Directions and calibration see 448 other balanced images. Greedy decoding. The strength is 1, which is a turn by 0.1 "
        "where nothing is calibrated."
    ),
    variants={
        "vlm": Variant("the trained model, on its own test images", "configs/tlvs/scenes_vlm.yaml", own_steps=True),
        "greedy": steered("greedy", method="none", lr=0.0),
        "mean_diff": fixed("mean difference of all tokens, fixed", refinement="mean_all", gate="none"),
        "sens_pc1": fixed("sensitive tokens, fixed", gate="none"),
        "calibrated": steered("calibrated, fixed", gate="none", sweep=(0.5,)),
        "tlvs": steered("TLVS", sweep=(0.5, 2.0)),
        "tlvs_exact": steered("TLVS, true sensitivity and entropy (three passes)", exact=True),
        "tlvs_risk": steered("TLVS, entropy gate alone", gate="risk", sweep=(0.5, 2.0)),
        "tlvs_sens": steered("TLVS, sensitivity gate alone", gate="sens", sweep=(0.5, 2.0)),
        "tlvs_captions": steered("TLVS, calibrated without questions", answers=False, sweep=(0.5,)),
        "tlvs_biased": biased(),
        "vista": fixed("VISTA", method="vista"),
        "vti": fixed("VTI", method="vti"),
        "vcd": fixed("VCD (two passes)", method="vcd"),
    },
    metrics=(
        Metric("test/balanced/chair_i", "wrong objects of those named", percent=True),
        Metric("test/balanced/chair_s", "captions with a wrong object", percent=True),
        Metric("test/balanced/recall", "objects that are named", percent=True),
        Metric("test/balanced/objects", "objects a caption"),
        Metric("test/balanced/malformed", "malformed captions", percent=True),
        Metric("test/pope_adversarial/accuracy", "POPE adversarial", percent=True),
        Metric("test/pope_adversarial/yes", "yes", percent=True),
        Metric("test/pope_random/accuracy", "POPE random", percent=True),
        Metric("test/pope_popular/accuracy", "POPE popular", percent=True),
    ),
    paired=(
        against_greedy("chair_i", "wrong objects", "balanced", "wrong", "named"),
        against_greedy("recall", "objects named", "balanced", "hit", "there"),
        against_greedy("pope_adversarial", "POPE adversarial", "pope_adversarial", "right", "asked"),
    ),
    steps=40,
    seed_options=("seed_everything", "data.init_args.seed"),
    curve=(
        *(f"test/balanced/alpha_{strength:g}/{name}" for strength in STRENGTHS for name in (RECALL, HALLUCINATION, "malformed")),
        *(f"test/pope_{kind}/yes" for kind in ("random", "popular")),
        *("test/chair_i", "test/chair_s", "test/recall", "test/extraction/top_share", "test/extraction/gini"),
        *(f"test/extraction/snr_{steps}_layer{layer}" for steps in ("all", "sensitive") for layer in range(3)),
    ),
    figures=(
        FigureSpec(
            "trade_off",
            "Wrong objects against objects that are named, for each strength of each method: lower right is better.",
            trade_off_figure,
        ),
        FigureSpec("yes", "How often each method says yes where half of the right answers are yes.", yes_figure),
    ),
)
