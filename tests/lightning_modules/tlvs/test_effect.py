"""The weights that come with Leyden hallucinate, and steering that is calibrated in seconds makes them do so less."""

from typing import Any

from lightning.pytorch import Trainer, seed_everything

from datamodules import SceneDataModule
from lightning_modules import TLVSModule


def test_steering_removes_wrong_objects_and_keeps_the_right_ones():
    seed_everything(0, verbose=False)
    few = {"n_train": 192, "n_val": 8, "n_test": 300, "n_unbiased": 8}
    data = SceneDataModule("unified", p_comp=0.5, null_image_prob=0.0, batch_size=64, eval_batch_size=150, generator_seed=2, **few)
    module = TLVSModule(**data.model_arguments(), alpha=0.0, sweep=[0.5], lr=0.01)
    quiet: Any = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    trainer = Trainer(accelerator="cpu", max_steps=12, max_epochs=-1, limit_val_batches=0, gradient_clip_val=1.0, **quiet)
    trainer.fit(module, datamodule=data)
    found = {key: value for scores in trainer.test(module, datamodule=data, verbose=False) for key, value in scores.items()}
    names = ("chair_i", "recall", "malformed")
    greedy, steered = ({name: found[f"test/balanced/{which}{name}"] for name in names} for which in ("", "alpha_0.5/"))
    assert greedy["chair_i"] > 0.15
    assert greedy["recall"] > 0.9
    assert steered["chair_i"] < 0.9 * greedy["chair_i"]
    assert steered["recall"] > greedy["recall"] - 0.03
    assert steered["malformed"] < 0.02
