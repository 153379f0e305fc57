"""TD7 agents with equal networks, batches and replays, ours and the one-file script, to be timed side by side."""

from functools import partial
from typing import Any

import torch

from benchmarks.sac_agents import Setting, bare_trainer
from benchmarks.td7_script import TD7Script
from benchmarks.timing import Timed
from datamodules import RLDataModule
from lightning_modules.r2r2.redundancy import RedundancyReduction
from lightning_modules.r2r2.td7_module import TD7Module


def our_update(setting: Setting, regularizer: RedundancyReduction | None = None) -> Timed:
    """Return two updates of our agent, one of them with the actor: sample, learn, give priorities; its replay holds ten batches."""
    module, data = _played(setting, regularizer=regularizer)

    def update() -> None:
        for _ in range(2):
            module.update(data.sample(setting.batch_size, module.device))
            module.updates += 1

    return update


def script_update(setting: Setting) -> Timed:
    """Return two updates of the script, on an equal replay of ours."""
    _, data = _played(setting)
    script = TD7Script(data.obs_dim, data.action_dim, setting.hidden, setting.hidden)

    def update() -> None:
        for _ in range(2):
            batch = data.sample(setting.batch_size, torch.device("cpu"))
            script.train(batch, partial(data.update_priorities, batch["index"]))

    return update


def _played(setting: Setting, **options: Any) -> tuple[TD7Module, RLDataModule]:
    """Play ten batches of random decisions."""
    steps = 10 * setting.batch_size
    data = RLDataModule(
        f"gym:{setting.env}",
        total_env_steps=steps,
        eval_every_env_steps=steps,
        learning_starts=steps,
        replay_capacity=steps,
        prioritised=True,
    )
    sizes: dict[str, Any] = {"latent_dim": setting.hidden, "hidden": setting.hidden, "batch_size": setting.batch_size}
    module = TD7Module(**data.model_arguments(), **sizes, use_checkpoints=False, **options)
    bare_trainer(data).fit(module, datamodule=data)
    return module, data
