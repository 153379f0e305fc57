"""What cancellation does inside a trained network, against its depth."""

from collections.abc import Mapping

from benchmarks.quiet_trainer import quiet_trainer

DATASET, DEPTHS, EPOCHS, RATE, CLIP = "texas", (2, 4, 8, 16), 100, 0.005, 5.0
STRENGTHS = {"s_0": 0.0, "s_1": 1.0, "s_1.5": 1.5}


def cancellation(variant: str, seed: int) -> Mapping[str, float]:
    """Train GESC with the same strength in all layers and look at its last layer.

    Args:
        variant: a key of ``STRENGTHS``.
        seed: seed of the weights, and number of the split from 1.

    Returns:
        For each depth L ``parallel_at_L``, the share of a message along its receiver, mean over links; ``energy_at_L``, the
        Dirichlet energy of the states after transport; and ``accuracy_at_L``, the test accuracy after the last epoch.
    """
    found: dict[str, float] = {}
    for depth in DEPTHS:
        measured = trained(STRENGTHS[variant], depth, seed)
        found |= {f"{name}_at_{depth}": value for name, value in measured.items()}
    return found


def trained(strength: float, depth: int, seed: int) -> Mapping[str, float]:
    """Train one network and measure it."""
    from lightning.pytorch import seed_everything

    from datamodules import HeterophilousGraphDataModule
    from lightning_modules import GESCModule

    seed_everything(seed, verbose=False)
    data = HeterophilousGraphDataModule(DATASET, split=seed - 1)
    module = GESCModule(**data.model_arguments(), hidden=32, heads=2, layers=depth, sic=strength, lr=RATE)
    trainer = quiet_trainer(data, max_epochs=EPOCHS, gradient_clip_val=CLIP, limit_val_batches=0, enable_checkpointing=False)
    trainer.fit(module, datamodule=data)
    (measured,) = trainer.test(module, datamodule=data, verbose=False)
    (graph,) = data.val_dataloader()
    last = module.eval().diagnose(graph)[-1]
    return {
        "parallel": float(last["parallel_fraction"].mean()),
        "energy": float(last["dirichlet_energy"]),
        "accuracy": measured["test/accuracy"],
    }
