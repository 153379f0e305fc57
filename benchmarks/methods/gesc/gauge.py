"""Does transport along edges help where every node is seen through a phase of its own?"""

from functools import partial

from benchmarks.experiments import Experiment, FigureSpec, Metric, Variant
from benchmarks.figures import bar_figure

SAME, REGAUGED = "test/accuracy", "test/regauged/accuracy"


def variant(title: str, name: str = "") -> Variant:
    return Variant(title, f"configs/gesc/gauge_sbm{name}.yaml")


GAUGE = Experiment(
    name="gauge_sbm",
    title="Gauge-SBM: nodes seen through random phases",
    description=(
        "300 nodes of three classes with eight complex features, ten per cent of the links within a class, a random phase on every "
        "node; the phases between linked nodes are given. 60 epochs, 50/25/25 %. The epoch with the best validation accuracy is "
        "tested, and again after all phases were drawn anew."
    ),
    variants={
        "gesc": variant("GESC, phases given"),
        "no_sic": variant("the same without cancellation (s = 0)", "_no_sic"),
        "learned": variant("GESC on (Re, Im), phases learned", "_learned"),
        "trivial": variant("GESC, phases taken as zero", "_trivial"),
        "mlp": variant("MLP on (Re, Im)", "_mlp"),
        "mlp_modulus": variant("MLP on moduli", "_mlp_modulus"),
        "gcn": variant("GCN on (Re, Im)", "_gcn"),
        "gat": variant("GAT on (Re, Im)", "_gat"),
        "h2gcn": variant("H2GCN on (Re, Im)", "_h2gcn"),
    },
    metrics=(
        Metric(SAME, "test accuracy", percent=True),
        Metric(REGAUGED, "after a new gauge", percent=True),
    ),
    steps=60,
    steps_option="trainer.max_epochs",
    seed_options=("seed_everything", "data.init_args.generator_seed"),
    figures=(
        FigureSpec(
            "gauge_sbm",
            "Only a model that transports along the edges is untouched by a new choice of phases.",
            partial(bar_figure, metrics={"as trained": SAME, "after a new gauge": REGAUGED}, x_label="test accuracy"),
        ),
    ),
)
