"""Trains node classifiers in this process: thousands of short runs would mostly wait for their imports."""

from collections.abc import Callable, Mapping
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.quiet_trainer import quiet_trainer

EPOCHS, PATIENCE, WIDTH, CLIP = 200, 60, 32, 5.0
RATES = (0.01, 0.005, 0.001)


def classifier(backbone: str, **options: Any) -> Any:
    """Return a baseline."""
    from lightning_modules import NodeClassifier

    return NodeClassifier(backbone=backbone, hidden=WIDTH, **options)


def gesc(**options: Any) -> Any:
    """Return GESC with two heads."""
    from lightning_modules import GESCModule

    return GESCModule(hidden=WIDTH, heads=2, **options)


MODELS: Mapping[str, Callable[..., Any]] = {
    **{name: partial(classifier, name) for name in ("mlp", "gcn", "gat", "sage", "fagcn", "gprgnn", "h2gcn")},
    "gesc": partial(gesc, preset="paper"),
    "gesc_no_sic": partial(gesc, preset="paper", sic=0.0),
    "gesc_official": partial(gesc, preset="official_code"),
}


ABLATIONS: Mapping[str, Callable[..., Any]] = {
    "no_sic": partial(gesc, sic=0.0),
    "sic_everywhere": partial(gesc, sic=1.5),
    "trivial": partial(gesc, connection="trivial"),
    "magnetic": partial(gesc, connection="magnetic"),
    "no_gate": partial(gesc, gate="none"),
    "soft_gate": partial(gesc, gate="soft"),
    "split_norm": partial(gesc, norm="split"),
    "no_consistency": partial(gesc, consistency_weight=0.0),
    "magnet": partial(classifier, "magnet"),
    "magnet_q0": partial(classifier, "magnet", magnetic_q=0.0),
}


def accuracies(dataset: str, model: str, repetition: int) -> Mapping[str, float]:
    """Train a model on one split with every learning rate.

    Args:
        dataset: name of a graph.
        model: a key of ``MODELS`` or ``ABLATIONS``.
        repetition: number of the split, from 1, and seed of the weights.

    Returns:
        For each rate ``val@rate``: best validation accuracy; and, of the epoch that reached it first, the test accuracy
        ``accuracy@rate`` and the one after Correct-and-Smooth and label propagation ``accuracy_cs_lp@rate``;
        ``oracle@rate``: the largest test accuracy of all epochs.
    """
    return {f"{name}@{rate}": value for rate in RATES for name, value in trained(dataset, model, rate, repetition).items()}


def trained(dataset: str, model: str, rate: float, repetition: int) -> Mapping[str, float]:
    """Train with one learning rate and test the epoch with the best validation accuracy."""
    from lightning.pytorch import seed_everything
    from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

    from callbacks import OracleTestMaximum
    from datamodules import HeterophilousGraphDataModule

    seed_everything(repetition, verbose=False)
    data = HeterophilousGraphDataModule(dataset, split=repetition - 1, sparse_features=True)
    data.prepare_data()
    module = {**MODELS, **ABLATIONS}[model](**data.model_arguments(), lr=rate)
    with TemporaryDirectory() as folder:
        best = ModelCheckpoint(folder, monitor="val/accuracy", mode="max", save_weights_only=True)
        oracle = OracleTestMaximum()
        stop = EarlyStopping("val/accuracy", mode="max", patience=PATIENCE)
        trainer = quiet_trainer(
            data, max_epochs=EPOCHS, gradient_clip_val=CLIP, callbacks=[best, stop, oracle], default_root_dir=folder
        )
        trainer.fit(module, datamodule=data)
        tested = {}
        for post in ("none", "cs_lp"):
            module.post = post
            (measured,) = trainer.test(module, datamodule=data, ckpt_path="best", weights_only=True, verbose=False)
            tested[post] = measured["test/accuracy"]
    return {
        "val": float(best.best_model_score),  # type: ignore[arg-type]
        "accuracy": tested["none"],
        "accuracy_cs_lp": tested["cs_lp"],
        "oracle": oracle.test_maximum,
    }
