"""One progress bar over the whole run, or a quiet line now and then where there is no terminal."""

import math
import sys
import time
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar
from torch import Tensor
from tqdm import tqdm

from callbacks.own_steps import steps_done, steps_in_all

PLAIN_FORMAT = "{desc}: {n_fmt}/{total_fmt} steps, {elapsed} elapsed, {remaining} left, {rate_fmt}{postfix}"


class RunProgressBar(ProgressBar):
    """Show the steps of the whole run with rate, remaining time, loss and the metric that checkpoints are chosen by.

    Steps are the optimiser's, with ``max_steps``, ``max_epochs`` and gradient accumulation for the total, or those that the module
    counts itself; without a total the bar counts up. The remaining time includes validation. Metrics are read only when the display
    is refreshed, so a step costs one look at the clock and never waits for the device. On a terminal the bar stands on standard
    error; elsewhere (log file, batch job) one plain line is written every ``plain_seconds``.

    Args:
        refresh_seconds: time between two refreshes on a terminal.
        plain_seconds: time between two lines elsewhere.
        loss: name of the logged loss to show.

    Raises:
        ValueError: if a time is not positive.
    """

    def __init__(self, refresh_seconds: float = 0.2, plain_seconds: float = 30.0, loss: str = "train/loss") -> None:
        super().__init__()
        if refresh_seconds <= 0 or plain_seconds <= 0:
            raise ValueError(f"RunProgressBar needs positive times, got {refresh_seconds=} and {plain_seconds=}")
        self.refresh_seconds = refresh_seconds
        self.plain_seconds = plain_seconds
        self.loss = loss
        self._enabled = True
        self._bar: tqdm | None = None
        self._plain = False
        self._due = 0.0
        self._monitored: dict[str, float] = {}

    def disable(self) -> None:
        self._enabled = False

    def enable(self) -> None:
        self._enabled = True

    def print(self, *args: Any, sep: str = " ", **kwargs: Any) -> None:
        """Print above the bar."""
        tqdm.write(sep.join(map(str, args)), **kwargs)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._open("train", steps_in_all(trainer, pl_module), steps_done(trainer, pl_module))

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if self._is_due():
            self._show(steps_done(trainer, pl_module), f"epoch {trainer.current_epoch}", self._metrics(trainer))

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._bar is not None:
            self._show(steps_done(trainer, pl_module), "train", self._metrics(trainer))
        self._close()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "validate":
            self._open("validate", _total(trainer.num_val_batches), leave=False)

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if trainer.state.fn == "validate":
            self._count("validate")
        elif self._bar is not None and not self._plain and self._is_due():
            where = f"epoch {trainer.current_epoch}, validation batch {batch_idx + 1}"
            self._show(steps_done(trainer, pl_module), where, self._monitored)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "validate":
            self._close()
        elif not trainer.sanity_checking:
            monitor = getattr(trainer.checkpoint_callback, "monitor", None)
            if monitor in trainer.callback_metrics:
                self._monitored = {monitor: trainer.callback_metrics[monitor].item()}

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._open("test", _total(trainer.num_test_batches), leave=False)

    def on_test_batch_end(self, *_: Any, **__: Any) -> None:
        self._count("test")

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._close()

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._open("predict", _total(trainer.num_predict_batches), leave=False)

    def on_predict_batch_end(self, *_: Any, **__: Any) -> None:
        self._count("predict")

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._close()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._close()

    def _open(self, description: str, total: float, initial: int = 0, leave: bool = True) -> None:
        """Start the display at ``initial`` of ``total`` steps."""
        if not self._enabled:
            return
        self._close()
        self._plain = not sys.stderr.isatty()
        self._due = time.monotonic() + (self.plain_seconds if self._plain else self.refresh_seconds)
        self._bar = tqdm(
            desc=description,
            total=int(total) if math.isfinite(total) else None,
            initial=initial,
            leave=leave,
            smoothing=0,
            dynamic_ncols=True,
            unit="step",
            file=_Silent() if self._plain else sys.stderr,
        )

    def _is_due(self) -> bool:
        return self._bar is not None and time.monotonic() >= self._due

    def _count(self, description: str) -> None:
        """Note one more batch of an evaluation."""
        if self._bar is not None:
            self._bar.n += 1
            if self._is_due():
                self._show(self._bar.n, description, {})

    def _show(self, step: int, description: str, metrics: dict[str, float]) -> None:
        """Refresh the bar, or write the line."""
        assert self._bar is not None
        self._bar.n = step
        self._bar.set_description_str(description, refresh=False)
        self._bar.set_postfix({name: f"{value:.4g}" for name, value in metrics.items()}, refresh=False)
        if self._plain:
            line = tqdm.format_meter(**{**self._bar.format_dict, "ncols": None, "bar_format": PLAIN_FORMAT})
            print(line, file=sys.stderr, flush=True)
        else:
            self._bar.refresh()
        self._due = time.monotonic() + (self.plain_seconds if self._plain else self.refresh_seconds)

    def _metrics(self, trainer: Trainer) -> dict[str, float]:
        """Return the values to show; this is where the host waits for the device."""
        loss = trainer.callback_metrics.get(self.loss)
        return ({self.loss: loss.item()} if isinstance(loss, Tensor) else {}) | self._monitored

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class _Silent:
    """A stream that shows nothing: without a terminal tqdm only keeps the clock."""

    def write(self, text: str) -> None: ...

    def flush(self) -> None: ...


def _total(batches: float | list[int | float]) -> float:
    """Add the batches of all loaders."""
    return sum(batches) if isinstance(batches, list) else batches
