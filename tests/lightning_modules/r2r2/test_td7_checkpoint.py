"""A checkpoint holds all that training changes, and enough to build the agent anew."""

from pathlib import Path
from typing import Any

import pytest
import torch
from completeness import Look, differ
from lightning import Trainer

from callbacks import ExactResume
from datamodules.rl.datamodule import RLDataModule
from lightning_modules.r2r2.redundancy import RedundancyReduction
from lightning_modules.r2r2.td7_module import TD7Module


def run(folder: Path, use_checkpoints: bool, checkpoint: Path | None = None) -> tuple[Look, TD7Module]:
    """Train an agent, or continue one that has nothing left to train."""
    torch.manual_seed(0 if checkpoint is None else 1)
    data = RLDataModule(
        "gym:Pendulum-v1",
        total_env_steps=108,
        eval_every_env_steps=54,
        train_freq=1 if use_checkpoints else 3,
        learning_starts=30,
        replay_capacity=80,
        eval_episodes=1,
        time_limit=7,
        prioritised=True,
    )
    module = TD7Module(
        obs_dim=3,
        action_dim=1,
        latent_dim=6,
        hidden=8,
        batch_size=16,
        utd=0.45,
        regularizer=RedundancyReduction(coef_rr=0.02),
        target_update_rate=4,
        use_checkpoints=use_checkpoints,
        steps_before_checkpointing=20,
        max_eps_when_checkpointing=30,
    )
    look = Look()
    trainer = Trainer(
        accelerator="cpu",
        devices=1,
        logger=False,
        callbacks=[look, ExactResume(every_n_steps=10**9, dirpath=str(folder))],
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        **data.trainer_defaults(),
    )
    trainer.fit(module, datamodule=data, ckpt_path=checkpoint, weights_only=True)
    return look, module


EPISODIC = {"module/updates_owed", "module/assessment/episodes", "module/assessment/record", "module/assessment/_worst"}
ALWAYS = {"module/updates", "module/_buffers/value_low", "module/_buffers/target_high", "data/collector/replay/max_priority"}


@pytest.mark.parametrize("use_checkpoints", [True, False])
def test_a_resumed_run_begins_where_the_other_ended(tmp_path: Path, use_checkpoints: bool):
    trained, _ = run(tmp_path, use_checkpoints)
    resumed, _ = run(tmp_path, use_checkpoints, tmp_path / "last.ckpt")
    changed = {path for path, value in trained.last.items() if path not in trained.first or differ(value, trained.first[path])}
    assert ALWAYS | (EPISODIC if use_checkpoints else set()) <= changed
    assert resumed.last.keys() == trained.last.keys()
    assert [path for path, value in trained.last.items() if differ(value, resumed.last[path])] == []


def test_an_agent_is_built_from_its_checkpoint_with_its_regularizer(tmp_path: Path):
    _, trained = run(tmp_path, use_checkpoints=True)
    loaded: Any = TD7Module.load_from_checkpoint(tmp_path / "last.ckpt", weights_only=True)
    obs = torch.randn(5, 3)
    assert torch.equal(loaded.exploit(obs), trained.exploit(obs))
    assert loaded.regularizer.coef_rr == 0.02
    assert loaded.assessment.state_dict() == trained.assessment.state_dict()
