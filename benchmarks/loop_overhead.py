"""Lightning's loop, as ``train.py`` sets it up, beside a plain torch loop over the same model, data, optimiser and average."""

import copy
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor

from benchmarks.timing import PairedTimes
from datamodules import LeydenDataModule
from launcher.cli import LeydenCLI
from launcher.quiet import quiet

WARM_UP_EPOCHS = 1
NO_VALIDATION = ["--trainer.check_val_every_n_epoch", "null", "--trainer.val_check_interval", "1000000000"]


def trainer_beside_plain_loop(configs: Sequence[str], options: Sequence[str], pairs: int) -> PairedTimes:
    """Time epochs of the Trainer and of the plain loop in turn, in one process.

    The plain loop runs from a callback of the Trainer between two epochs. After the first epoch both must hold the same parameters.

    Args:
        configs: config files of an experiment whose module is an ``AgentModule``.
        options: further words for the command line.
        pairs: number of pairs of epochs.

    Raises:
        RuntimeError: if the two loops do not compute the same.
    """
    quiet()
    with tempfile.TemporaryDirectory() as folder:
        words = [word for config in configs for word in ("--config", config)]
        stop = ["--trainer.max_epochs", str(pairs + WARM_UP_EPOCHS), "--trainer.max_steps", "-1"]
        words += [*NO_VALIDATION, *stop, *options]
        written = {word.removeprefix("--trainer.") for word in words if word.startswith("--trainer.")}
        cli = LeydenCLI(words, Path(folder), "speed", "speed/loop", resume_step=None, written=written)
        plain = PlainLoop(cli)
        turns = TakeTurns(plain)
        _callbacks(cli).append(turns)
        cli.trainer.fit(cli.model, datamodule=cli.datamodule)
    return PairedTimes(turns.ours[WARM_UP_EPOCHS:], turns.peer[WARM_UP_EPOCHS:])


class PlainLoop:
    """What a person would write without Lightning: batches, loss, gradients, clipping, optimiser, schedule, average."""

    def __init__(self, cli: LeydenCLI) -> None:
        self.module = copy.deepcopy(cli.model)
        self.parameters = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        settings = self.module.configure_optimizers()
        self.optimizer = settings["optimizer"]
        self.scheduler = settings["lr_scheduler"]["scheduler"]
        self.clip: float | None = cli.trainer.gradient_clip_val
        self.ema: Any = next((callback for callback in _callbacks(cli) if type(callback).__name__ == "EMAWeights"), None)
        self.average = [parameter.detach().clone() for parameter in self.parameters]
        self.step = self.epoch = 0

    def run_epoch(self, datamodule: LeydenDataModule) -> None:
        """Train for one epoch."""
        for batch in self._batches(datamodule):
            self.optimizer.zero_grad()
            self._loss(batch).backward()
            if self.clip:
                torch.nn.utils.clip_grad_norm_(self.parameters, self.clip)
            self.optimizer.step()
            self.scheduler.step()
            if self.ema:
                with torch.no_grad():
                    torch._foreach_lerp_(self.average, self.parameters, 1.0 - self.ema.decay_at(self.step))
            self.step += 1
        self.epoch += 1

    def _batches(self, datamodule: LeydenDataModule) -> Iterator[dict[str, Tensor]]:
        loader = datamodule.train_dataloader()
        loader.sampler.set_epoch(self.epoch)
        yield from loader

    def _loss(self, batch: dict[str, Tensor]) -> Tensor:
        module = self.module
        horizon = module.sample_horizon(self.step)
        first = max(horizon - module.loss_window + 1, min(horizon, 1))
        states = module.iterates(batch, range(first, horizon + 1))
        return module.task.loss(module.task.decode(torch.stack(list(states.values())), module.task.views(batch)), batch)


class TakeTurns(Callback):
    """Clock an epoch of the Trainer from one start to the next, then let the plain loop do the same epoch."""

    def __init__(self, plain: PlainLoop) -> None:
        self.plain = plain
        self.ours: list[float] = []
        self.peer: list[float] = []
        self.begin = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.begin = time.perf_counter()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if not trainer.is_last_batch:
            return
        middle = time.perf_counter()
        self.plain.run_epoch(trainer.datamodule)  # type: ignore[attr-defined]
        end = time.perf_counter()
        self.ours.append(middle - self.begin)
        self.peer.append(end - middle)
        if len(self.ours) == WARM_UP_EPOCHS:
            self._require_equal(pl_module)
            end = time.perf_counter()
        self.begin = end

    def _require_equal(self, pl_module: LightningModule) -> None:
        for (name, ours), plain in zip(pl_module.named_parameters(), self.plain.module.parameters(), strict=True):
            if not torch.allclose(ours, plain, rtol=1e-4, atol=1e-6):
                raise RuntimeError(f"the plain loop does not compute what the Trainer does: {name} differs after an epoch")


def _callbacks(cli: LeydenCLI) -> list[Callback]:
    """Return the Trainer's list of callbacks, which it sets up behind the type checker's back."""
    return cli.trainer.callbacks  # type: ignore[attr-defined]
