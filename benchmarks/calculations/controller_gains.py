"""How a controller with given gains holds the number of active experts of a language model."""

import warnings
from collections.abc import Mapping

from benchmarks.quiet_trainer import quiet_trainer

PROPORTIONAL = (0.0, 0.1, 0.3, 0.6, 0.9, 1.2, 1.5)
INTEGRAL = (0.02, 0.1, 0.2, 0.5, 1.0, 2.0)
STEPS, LAST = 150, 100
TARGET, EXPERTS = 4.0, 16


def name_of(kp: float, ki: float) -> str:
    """Return the name of a pair of gains."""
    return f"kp_{kp:g}_ki_{ki:g}"


def gains(name: str) -> tuple[float, float]:
    """Return the pair of gains of a name."""
    kp, _, ki = name.removeprefix("kp_").partition("_ki_")
    return float(kp), float(ki)


def gain_response(variant: str, seed: int) -> Mapping[str, float]:
    """Train a small language model under a controller.

    Args:
        variant: a name made by ``name_of``.
        seed: seed of weights and data.

    Returns:
        ``radius``, the spectral radius of the linear plant with the gain at the start; ``deviation``, the root mean square of the
        active experts minus the target over the last steps; ``offset``, their mean.
    """
    import torch
    from lightning.pytorch import seed_everything
    from lightning.pytorch.callbacks import LambdaCallback

    from datamodules import TextCorpusDataModule
    from lightning_modules import MoELanguageModule
    from lightning_modules.dtop_p.closed_form import initial_threshold, plant_gain, spectral_radius

    kp, ki = gains(variant)
    seed_everything(seed, verbose=False)
    data = TextCorpusDataModule("shakespeare", seed=seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*stable.*")
        module = MoELanguageModule(
            **data.model_arguments(), num_experts=EXPERTS, target=TARGET, kp=kp, ki=ki, load_balance=1e-2, warmup_share=0.0
        )
    active: list[torch.Tensor] = []
    trainer = quiet_trainer(
        data,
        max_steps=STEPS,
        gradient_clip_val=1.0,
        limit_val_batches=0,
        enable_checkpointing=False,
        callbacks=[LambdaCallback(on_train_batch_end=lambda trainer, module, *_: active.append(module.control.active))],
    )
    trainer.fit(module, datamodule=data)
    error = torch.stack(active)[-LAST:] - TARGET
    plant = plant_gain(initial_threshold(TARGET, EXPERTS))
    return {
        "radius": spectral_radius(plant, kp, ki),
        "deviation": error.square().mean().sqrt().item(),
        "offset": error.mean().item(),
    }
