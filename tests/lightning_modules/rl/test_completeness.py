"""A checkpoint holds everything: whoever adds an attribute that training changes, and forgets to save it, hears of it here."""

from pathlib import Path
from typing import Any

import pytest
import torch
from completeness import Look, differ
from lightning import Trainer

from callbacks import ExactResume, PrototypeGrounding
from datamodules.rl.datamodule import RLDataModule
from lightning_modules.protosac.module import ProtoSACModule
from lightning_modules.rl.sac_module import SACModule


def run(folder: Path, agent: type[SACModule], checkpoint: Path | None = None) -> Look:
    """Train an agent, or continue one that has nothing left to train."""
    torch.manual_seed(0 if checkpoint is None else 1)
    data = RLDataModule(
        "gym:Pendulum-v1",
        total_env_steps=126,
        eval_every_env_steps=63,
        num_envs=3,
        train_freq=3,
        learning_starts=30,
        replay_capacity=100,
        eval_episodes=1,
        time_limit=25,
        normalise_observations=True,
        merge_every_ticks=4,
    )
    options: dict[str, Any] = {"num_prototypes": 4} if agent is ProtoSACModule else {}
    module = agent(obs_dim=3, action_dim=1, hidden=[8], batch_size=16, utd=0.4, **options)
    look = Look()
    grounding = [PrototypeGrounding(every_env_steps=50)] if agent is ProtoSACModule else []
    trainer = Trainer(
        accelerator="cpu",
        devices=1,
        logger=False,
        callbacks=[*grounding, look, ExactResume(every_n_steps=10**9, dirpath=str(folder))],
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        **data.trainer_defaults(),
    )
    trainer.fit(module, datamodule=data, ckpt_path=checkpoint, weights_only=True)
    return look


@pytest.mark.parametrize("agent", [SACModule, ProtoSACModule])
def test_a_resumed_run_begins_where_the_other_ended(tmp_path: Path, agent: type[SACModule]):
    trained = run(tmp_path, agent)
    resumed = run(tmp_path, agent, tmp_path / "last.ckpt")
    changed = {path for path, value in trained.last.items() if path not in trained.first or differ(value, trained.first[path])}
    assert {"module/updates", "module/ratio/_owed", "data/collector/replay/written", "data/_ticks"} <= changed
    assert {"data/collector/_returns", "data/normaliser/shared/mean", "data/normaliser/unmerged/count"} <= changed
    assert resumed.last.keys() == trained.last.keys()
    assert [path for path, value in trained.last.items() if differ(value, resumed.last[path])] == []
