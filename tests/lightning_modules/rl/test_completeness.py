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
from lightning_modules.r2r2.simba_module import SimbaV2Module
from lightning_modules.rl.off_policy import OffPolicyModule
from lightning_modules.rl.sac_module import SACModule

AGENTS: dict[type[OffPolicyModule], dict[str, Any]] = {
    SACModule: {"hidden": [8]},
    ProtoSACModule: {"hidden": [8], "num_prototypes": 4},
    SimbaV2Module: {"actor_width": 4, "critic_width": 8, "spl": True, "latent_dim": 4, "model_width": 8},
}


def run(folder: Path, agent: type[OffPolicyModule], checkpoint: Path | None = None) -> Look:
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
        scale_rewards=True,
        merge_every_ticks=4,
    )
    module = agent(obs_dim=3, action_dim=1, batch_size=16, utd=0.4, **AGENTS[agent])
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


@pytest.mark.parametrize("agent", AGENTS)
def test_a_resumed_run_begins_where_the_other_ended(tmp_path: Path, agent: type[OffPolicyModule]):
    trained = run(tmp_path, agent)
    resumed = run(tmp_path, agent, tmp_path / "last.ckpt")
    changed = {path for path, value in trained.last.items() if path not in trained.first or differ(value, trained.first[path])}
    assert {"module/updates", "module/ratio/_owed", "data/collector/replay/written", "data/_ticks"} <= changed
    assert {"data/collector/_returns", "data/normaliser/shared/mean", "data/normaliser/unmerged/count"} <= changed
    assert {"data/scaler/shared/mean", "data/scaler/returns", "data/scaler/scale"} <= changed
    assert resumed.last.keys() == trained.last.keys()
    assert [path for path, value in trained.last.items() if differ(value, resumed.last[path])] == []
