"""A checkpoint holds everything: whoever adds an attribute that training changes, and forgets to save it, hears of it here."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning import Callback, LightningModule, Trainer

from callbacks import ExactResume, PrototypeGrounding
from datamodules.rl.datamodule import RLDataModule
from lightning_modules.protosac.module import ProtoSACModule
from lightning_modules.rl.sac_module import SACModule

OURS = ("datamodules", "lightning_modules")
STORES = {"_parameters", "_buffers", "_modules"}
FOREIGN = (vars(LightningModule()).keys() | vars(RLDataModule.__mro__[1]()).keys()) - STORES
"""What Lightning and torch keep for themselves; parameters, buffers and submodules are looked into."""
TRANSIENT = {"_stage_envs"}
"""What a resumed run builds anew."""

Numbers = dict[str, Any]


def numbers(thing: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every number, tensor and random state in objects of this project, by its path."""
    if isinstance(thing, torch.Generator):
        yield path, thing.get_state()
    elif isinstance(thing, (torch.Tensor, np.ndarray)):
        yield path, torch.as_tensor(thing).detach().clone()
    elif isinstance(thing, (bool, int, float, str, Fraction, np.generic)):
        yield path, thing
    elif isinstance(thing, (dict, list, tuple)):
        for key, value in thing.items() if isinstance(thing, dict) else enumerate(thing):
            yield from numbers(value, f"{path}/{key}")
    elif isinstance(thing, torch.nn.Module) or type(thing).__module__.startswith(OURS):
        for key, value in vars(thing).items():
            ours = type(thing).__module__.startswith(OURS) and key not in FOREIGN | TRANSIENT
            if ours or (isinstance(thing, torch.nn.Module) and key in STORES):
                yield from numbers(value, f"{path}/{key}")


class Look(Callback):
    """Note all numbers as training begins, if there is any, and as it ends."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.first = self._all(trainer, pl_module)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.last = self._all(trainer, pl_module)

    @staticmethod
    def _all(trainer: Trainer, pl_module: LightningModule) -> Numbers:
        return dict(numbers(pl_module, "module")) | dict(numbers(trainer.datamodule, "data"))


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


def differ(one: Any, other: Any) -> bool:
    return not torch.equal(one, other) if isinstance(one, torch.Tensor) else one != other
