"""Continue a killed run as if it had never stopped."""

import os
import random
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.utilities.exceptions import SIGTERMException
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from torch import Tensor

from callbacks.own_steps import LogsAtItsOwnStep, steps_done
from callbacks.rank_shards import RankShards

RNGState = dict[str, Any]

ANSWERED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
RANKS_AGREE_EVERY = 10


class ExactResume(Checkpoint):
    """Write ``last.ckpt`` and ``previous.ckpt`` at moments from which a restart is exact, and restore all random states.

    Lightning's checkpoint holds parameters, optimisers, loops, callbacks and the loaders' positions. This callback adds the
    random number generators of every rank, and saves only where nothing is under way: after a training step that neither ends
    the epoch nor is followed by validation, at the start of an epoch, and when training has ended. Together with loaders whose
    order depends on (seed, epoch) alone, the continued run equals the uninterrupted one bit for bit on a CPU. A data module with
    state of its own on each rank (``rank_state_dict``, as reinforcement learning has) gets it back too, from files beside the
    checkpoint.

    Ctrl-C and SIGTERM are answered between two steps: the checkpoint is written and the run ends. A second Ctrl-C ends it at
    once. SLURM's SIGUSR1 is handed on to Lightning's requeueing, also between two steps. With several ranks they agree on the
    signal every ``RANKS_AGREE_EVERY`` steps.

    Args:
        every_n_steps: steps between two checkpoints: optimiser steps, or those that the module counts itself (of its environment).
        every_minutes: longest time between two checkpoints; None: only steps count.
        dirpath: folder of the checkpoints; default ``<trainer.default_root_dir>/checkpoints``.

    Raises:
        ValueError: if a number is not positive.
    """

    def __init__(self, every_n_steps: int = 100, every_minutes: float | None = None, dirpath: str | None = None) -> None:
        if every_n_steps < 1 or (every_minutes is not None and every_minutes <= 0):
            raise ValueError(f"ExactResume needs positive numbers, got {every_n_steps=} and {every_minutes=}")
        self.every_n_steps = every_n_steps
        self.every_minutes = every_minutes
        self.dirpath = dirpath
        self._saved_at_step = 0
        self._saved_at_time = 0.0
        self._rng_states_to_restore: list[RNGState] | None = None
        self._shards_to_read: str | None = None
        self._shards: str | None = None
        self._shards_of_last: str | None = None
        self._signal = 0
        self._asked_since_agreement = 0
        self._logged_steps = 0
        self._at_epoch_start = False
        self._continues_at_epoch_start = False
        self._replaced_handlers: dict[int, Any] = {}

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._shards_to_read is not None:
            self._shards_of_last, self._shards_to_read = self._shards_to_read, None
            RankShards(self._folder(trainer)).read(trainer, self._shards_of_last)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._saved_at_step, self._saved_at_time = steps_done(trainer, pl_module), time.monotonic()
        self._signal = 0
        if threading.current_thread() is threading.main_thread():
            self._replaced_handlers = {number: signal.signal(number, self._remember) for number in ANSWERED_SIGNALS}
        if self._continues_at_epoch_start:
            self._continues_at_epoch_start = False
            _begin_epoch_anew(trainer)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._restore_rng(trainer)
        stop, overdue = self._asked(trainer)
        if stop or overdue or self._is_due(trainer, pl_module):
            self._save(trainer, pl_module, logged_steps=trainer.fit_loop.epoch_loop._batches_that_stepped, at_epoch_start=True)
        self._answer(stop)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self._restore_rng(trainer)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self._nothing_follows(trainer):
            stop, overdue = self._asked(trainer)
            if stop or overdue or self._is_due(trainer, pl_module):
                # Lightning logs this step only after this hook; logged now, the step is on disk before the checkpoint that ends it.
                trainer._logger_connector.update_train_step_metrics()
                self._save(trainer, pl_module, logged_steps=trainer.fit_loop.epoch_loop._batches_that_stepped + 1)
            self._answer(stop)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._save(trainer, pl_module, logged_steps=trainer.fit_loop.epoch_loop._batches_that_stepped)
        self._restore_handlers()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._restore_handlers()

    def state_dict(self) -> dict[str, int]:
        """Return where the run stands, and how many steps had been logged: loggers drop what a killed run logged after them."""
        return {"logged_steps": self._logged_steps, "at_epoch_start": self._at_epoch_start}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self._continues_at_epoch_start = bool(state_dict["at_epoch_start"])

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        states: list[Any] = [rng_state()]
        if trainer.world_size > 1 and dist.is_initialized():
            states = [None] * trainer.world_size
            dist.all_gather_object(states, rng_state())
        checkpoint["rng_states"] = states
        checkpoint["rank_shards"] = self._shards

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        self._rng_states_to_restore = checkpoint.get("rng_states")
        self._shards_to_read = checkpoint.get("rank_shards")

    def _nothing_follows(self, trainer: Trainer) -> bool:
        epoch_loop = trainer.fit_loop.epoch_loop
        fetcher = trainer.fit_loop._data_fetcher
        assert fetcher is not None
        validation_follows = epoch_loop._should_check_val_fx(fetcher)
        return not (validation_follows or epoch_loop._is_training_done or epoch_loop._should_accumulate())

    def _is_due(self, trainer: Trainer, pl_module: LightningModule) -> bool:
        return steps_done(trainer, pl_module) - self._saved_at_step >= self.every_n_steps

    def _save(self, trainer: Trainer, pl_module: LightningModule, logged_steps: int, at_epoch_start: bool = False) -> None:
        if isinstance(pl_module, LogsAtItsOwnStep):
            logged_steps = pl_module.logger_step + 1
        self._saved_at_step, self._saved_at_time = steps_done(trainer, pl_module), time.monotonic()
        self._logged_steps, self._at_epoch_start = logged_steps, at_epoch_start
        for logger in trainer.loggers:
            logger.save()
        folder = self._folder(trainer)
        shards = RankShards(folder)
        self._shards = shards.write(trainer, f"step-{trainer.global_step}-{logged_steps}")
        last = folder / "last.ckpt"
        if trainer.is_global_zero and last.exists():
            os.replace(last, folder / "previous.ckpt")
        trainer.save_checkpoint(last)
        if trainer.is_global_zero:
            shards.keep_only([self._shards, self._shards_of_last])
        self._shards_of_last, self._shards = self._shards, None
        self._at_epoch_start = False  # checkpoints that others write later stand elsewhere

    def _folder(self, trainer: Trainer) -> Path:
        return Path(self.dirpath or Path(trainer.default_root_dir) / "checkpoints")

    def _restore_rng(self, trainer: Trainer) -> None:
        if self._rng_states_to_restore is not None:
            states, self._rng_states_to_restore = self._rng_states_to_restore, None
            if len(states) == trainer.world_size:
                set_rng_state(states[trainer.global_rank])
            else:
                rank_zero_warn(
                    f"the run was saved by {len(states)} processes and goes on with {trainer.world_size}: "
                    "random numbers start anew, so that dropout and the like will differ"
                )

    def _asked(self, trainer: Trainer) -> tuple[int, bool]:
        """Return the signal that came, 0 if none did, and whether a checkpoint is overdue; all ranks return the same."""
        overdue = self.every_minutes is not None and time.monotonic() - self._saved_at_time > 60 * self.every_minutes
        if trainer.world_size == 1:
            return self._signal, overdue
        self._asked_since_agreement += 1
        if self._asked_since_agreement < RANKS_AGREE_EVERY:
            return 0, False
        self._asked_since_agreement = 0
        strongest = torch.tensor([self._signal, overdue], device=trainer.strategy.root_device)
        dist.all_reduce(strongest, op=dist.ReduceOp.MAX)
        return int(strongest[0]), bool(strongest[1])

    def _answer(self, stop: int) -> None:
        if not stop:
            return
        self._signal = 0
        if stop == signal.SIGINT:
            raise KeyboardInterrupt
        if stop == signal.SIGTERM:
            raise SIGTERMException
        requeue = self._replaced_handlers[stop]
        if callable(requeue):
            requeue(stop, None)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT == self._signal:
            raise KeyboardInterrupt
        self._signal = number

    def _restore_handlers(self) -> None:
        for number, handler in self._replaced_handlers.items():
            signal.signal(number, handler)
        self._replaced_handlers = {}


def _begin_epoch_anew(trainer: Trainer) -> None:
    """Let a run that was saved at the start of an epoch begin that epoch like any other.

    Lightning would infer from the counters that the epoch before is not quite over, and train one more batch of it wherever no
    validation ended it.
    """
    fit_loop = trainer.fit_loop
    progress: Any
    for progress in (fit_loop.epoch_progress.total, fit_loop.epoch_progress.current):
        progress.ready = progress.started = progress.processed = progress.completed
    fit_loop._restarting = False  # its setter would keep True when training is limited by steps
    fit_loop.epoch_loop.restarting = False
    fit_loop.reset_restart_stage()
    fit_loop.epoch_loop.reset_restart_stage()


def rng_state() -> RNGState:
    """Return the state of the generators of Python, NumPy, torch and this process's GPU, as numbers and tensors."""
    version, internal, gauss = random.getstate()
    numpy_state: Mapping[str, Any] = np.random.get_state(legacy=False)
    state: RNGState = {
        "python": [version, list(internal), gauss],
        "numpy": {
            "key": torch.from_numpy(numpy_state["state"]["key"].astype(np.int64)),
            "pos": int(numpy_state["state"]["pos"]),
            "has_gauss": int(numpy_state["has_gauss"]),
            "gauss": float(numpy_state["gauss"]),
        },
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def set_rng_state(state: RNGState) -> None:
    """Set what ``rng_state`` returned."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    numpy_state = state["numpy"]
    key: Tensor = numpy_state["key"]
    np.random.set_state(
        {
            "bit_generator": "MT19937",
            "state": {"key": key.numpy().astype(np.uint32), "pos": numpy_state["pos"]},
            "has_gauss": numpy_state["has_gauss"],
            "gauss": numpy_state["gauss"],
        }
    )
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
