"""Soft actor-critic agents with equal networks, batches and steps, ours and stable-baselines3's, to be timed side by side."""

from dataclasses import dataclass
from typing import Any

import torch
from lightning import Trainer

from benchmarks.timing import Timed
from datamodules import RLDataModule
from launcher.cuda_check import settle_cuda_check
from launcher.quiet import quiet
from lightning_modules.rl.sac_module import SACModule


@dataclass(frozen=True)
class Setting:
    """What both sides share.

    Attributes:
        env: a registered Gymnasium environment.
        hidden: width of the two hidden layers of actor and critics.
        batch_size: transitions of an update.
        train_freq: decisions of a tick; as many updates follow.
    """

    env: str
    hidden: int
    batch_size: int
    train_freq: int = 1

    @property
    def sizes(self) -> str:
        """The sizes in words."""
        return f"{self.hidden}-{self.hidden}, batch {self.batch_size}"


def our_update(setting: Setting, module_class: type[SACModule] = SACModule, **options: Any) -> Timed:
    """Return one update of our agent: sample, critics, actor, temperature, target; its replay holds ten batches."""
    steps = 10 * setting.batch_size
    trainer, module, data = our_agent(setting, steps, learning_starts=steps, module_class=module_class, **options)
    trainer.fit(module, datamodule=data)
    return lambda: module.update(module.experience.sample(setting.batch_size, module.device))


def their_update(setting: Setting) -> Timed:
    """Return one update of stable-baselines3's SAC, on as many transitions."""
    steps = 10 * setting.batch_size
    agent = their_agent(setting, steps, learning_starts=steps)
    agent.learn(steps)
    return lambda: agent.train(1, setting.batch_size)


def our_steps(setting: Setting, steps: int) -> Timed:
    """Return a training through the Trainer, without loggers, bar and checkpoints: a batch of random decisions, then updates."""

    def run() -> None:
        trainer, module, data = our_agent(setting, steps, learning_starts=setting.batch_size)
        trainer.fit(module, datamodule=data)

    return run


def their_steps(setting: Setting, steps: int) -> Timed:
    """Return the same training by stable-baselines3."""
    return lambda: their_agent(setting, steps, learning_starts=setting.batch_size).learn(steps)


def our_agent(
    setting: Setting, steps: int, learning_starts: int, module_class: type[SACModule] = SACModule, **options: Any
) -> tuple[Trainer, SACModule, RLDataModule]:
    """Build trainer, agent and data of one run without evaluation, as ``train.py`` does."""
    data = RLDataModule(
        f"gym:{setting.env}",
        total_env_steps=steps,
        eval_every_env_steps=steps,
        learning_starts=learning_starts,
        train_freq=setting.train_freq,
        replay_capacity=steps,
    )
    hidden = [setting.hidden, setting.hidden]
    module = module_class(**data.model_arguments(), hidden=hidden, batch_size=setting.batch_size, **options)
    return bare_trainer(data), module, data


def bare_trainer(data: RLDataModule) -> Trainer:
    """Return a trainer on one thread that neither evaluates, logs nor saves, as fast as ``train.py`` makes it."""
    quiet()
    settle_cuda_check()
    torch.set_num_threads(1)
    return Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        limit_val_batches=0,
        **data.trainer_defaults(),
    )


def their_agent(setting: Setting, steps: int, learning_starts: int) -> Any:
    """Build stable-baselines3's agent."""
    from stable_baselines3 import SAC

    settle_cuda_check()  # as in a process of its own, which never imported Lightning
    torch.set_num_threads(1)
    return SAC(
        "MlpPolicy",
        setting.env,
        buffer_size=steps,
        learning_starts=learning_starts,
        batch_size=setting.batch_size,
        train_freq=setting.train_freq,
        gradient_steps=setting.train_freq,
        policy_kwargs={"net_arch": [setting.hidden, setting.hidden]},
        device="cpu",
    )
