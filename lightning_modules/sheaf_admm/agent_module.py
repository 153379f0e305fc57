"""What all Lightning modules of communicating agents share: horizons, window loss, metrics, optimiser."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, cast

import numpy as np
import torch
from lightning import LightningModule
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torchmetrics import MeanMetric, MetricCollection

from lightning_modules.optimizer import adamw
from lightning_modules.sheaf_admm.metrics import IterationsToSolve
from lightning_modules.sheaf_admm.task import AgentTask, Batch

Horizon = int | tuple[int, int]

_STEPS_BETWEEN_CHECKS = 50


def horizon_bounds(horizon: Horizon) -> tuple[int, int]:
    """Smallest and largest number of iterations that a horizon allows."""
    return (horizon, horizon) if isinstance(horizon, int) else (horizon[0], horizon[1])


class AgentModule(LightningModule, ABC):
    """Train and test agents that encode their views, coordinate for some iterations and decode their states.

    A subclass says how they coordinate: ``iterates``. ``smoke`` holds the values that a trial of the plumbing replaces.

    Args:
        task: the problem: graph, encoder, decoder, loss, vote and metrics.
        train_horizon: iterations of a training step, one number or the bounds (both included) of a uniform draw a step. The draw
            is a function of ``horizon_seed`` and the global step, so that all ranks draw alike.
        eval_horizon: iterations in validation and test.
        test_horizons: further numbers of iterations whose metrics a test reports, as ``test/solved_at_16``.
        test_suites: names of further test sets, in the order of their loaders; None takes them from the data.
        loss_window: the training loss is the mean over so many last iterates.
        horizon_seed: seed of the draw of ``train_horizon``.
        lr: learning rate of AdamW.
        weight_decay: its weight decay.
        warmup_steps: steps over which the learning rate rises linearly to ``lr``, where it stays.

    Raises:
        ValueError: if a horizon is negative, or shorter than the loss window without being 0.
    """

    smoke: ClassVar[dict[str, Any]] = {"train_horizon": 2, "eval_horizon": 2, "test_horizons": [4], "loss_window": 2}

    _bad_step: Tensor

    def __init__(
        self,
        task: AgentTask,
        train_horizon: Horizon = 20,
        eval_horizon: int = 20,
        test_horizons: Sequence[int] = (),
        test_suites: Sequence[str] | None = None,
        loss_window: int = 1,
        horizon_seed: int = 0,
        lr: float = 1e-3,
        weight_decay: float = 1e-7,
        warmup_steps: int = 200,
    ) -> None:
        super().__init__()
        self.save_hyperparameters(ignore=["task"])
        self.save_hyperparameters({"task": task.specification(), "_instantiator": "lightning.pytorch.cli.instantiate_module"})
        self.task = task
        self.train_horizon = train_horizon
        self.eval_horizon = eval_horizon
        self.test_horizons = sorted({eval_horizon, *test_horizons})
        self.loss_window = loss_window
        self.horizon_seed = horizon_seed
        self.lr, self.weight_decay, self.warmup_steps = lr, weight_decay, warmup_steps
        shortest, longest = horizon_bounds(train_horizon)
        if shortest > longest:
            raise ValueError(f"train_horizon={train_horizon}: the first number must not be greater than the second")
        for name, horizon in {"train_horizon": shortest, "eval_horizon": eval_horizon}.items():
            if horizon < 0 or 0 < horizon < loss_window:
                raise ValueError(f"{name}={horizon} must be 0 or at least loss_window={loss_window}")
        if self.test_horizons[0] < 0:
            raise ValueError(f"test_horizons={list(test_horizons)} must not be negative")

        self.val_loss = MeanMetric()
        self.val_metrics = task.metrics("val/")
        postfixes = ["" if k == eval_horizon else f"_at_{k}" for k in self.test_horizons]
        self.test_prefixes = ["test/", *(f"test/{suite}/" for suite in test_suites or ())]
        self.test_metrics = nn.ModuleList(
            nn.ModuleList(task.metrics(prefix, postfix) for postfix in postfixes) for prefix in self.test_prefixes
        )
        self.test_losses = nn.ModuleList(MeanMetric() for _ in self.test_prefixes)
        self.iterations_to_solve = nn.ModuleList(IterationsToSolve() for _ in self.test_prefixes)
        self.register_buffer("_bad_step", torch.tensor(-1), persistent=False)

    @abstractmethod
    def iterates(self, batch: Batch, wanted: Sequence[int]) -> dict[int, Tensor]:
        """Let the agents coordinate for ``max(wanted)`` iterations and return the wanted states ``[N, B, d]`` by iteration."""

    @torch.no_grad()
    def locate_nonfinite(self, batch: Batch, horizon: int) -> str:
        """Say where the computation of a batch first leaves the finite numbers."""
        states = self.iterates(batch, range(horizon + 1))
        bad = [k for k, x in states.items() if not x.isfinite().all()]
        return f"the state of iteration {bad[0]}" if bad else "the decoder or the loss"

    def forward(self, batch: Batch) -> Tensor:
        """Return the logits of the answer, ``[B, cells, classes]``, after ``eval_horizon`` iterations."""
        return self._answer(self.iterates(batch, [self.eval_horizon])[self.eval_horizon], batch)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        horizon = self.sample_horizon(self.global_step)
        loss = self._window_loss(self.iterates(batch, self._window(horizon)), batch)
        self._stop_if_nonfinite(loss, batch, horizon)
        self.log("train/loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self._evaluate(batch, "val/", self.val_loss, {self.eval_horizon: self.val_metrics})

    def test_step(self, batch: Batch, batch_idx: int, dataloader_idx: int = 0) -> None:
        prefix: str = self.test_prefixes[dataloader_idx]
        loss, iterations = self.test_losses[dataloader_idx], self.iterations_to_solve[dataloader_idx]
        collections = cast("list[MetricCollection]", self.test_metrics[dataloader_idx])
        metrics = dict(zip(self.test_horizons, collections, strict=True))
        iterations.update(self._evaluate(batch, prefix, loss, metrics), self.test_horizons)  # type: ignore[operator]
        self.log(f"{prefix}iterations_to_solve", iterations, add_dataloader_idx=False)  # type: ignore[arg-type]

    def predict_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return the answers, ``[B, cells]``."""
        return self(batch).argmax(dim=-1)

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        return adamw(self.parameters(), self.lr, self.weight_decay, warmup_steps=self.warmup_steps)

    def sample_horizon(self, step: int) -> int:
        """Number of iterations of a training step; equal on all ranks."""
        shortest, longest = horizon_bounds(self.train_horizon)
        return int(np.random.default_rng((self.horizon_seed, step)).integers(shortest, longest, endpoint=True))

    def _window(self, horizon: int) -> range:
        """Iterations whose states enter the loss."""
        return range(max(horizon - self.loss_window + 1, min(horizon, 1)), horizon + 1)

    def _window_loss(self, states: dict[int, Tensor], batch: Batch) -> Tensor:
        """Mean loss of the given states."""
        return self.task.loss(self.task.decode(torch.stack(list(states.values())), self.task.views(batch)), batch)

    def _answer(self, x_NBd: Tensor, batch: Batch) -> Tensor:
        """Read the joint answer from the agents' states."""
        return self.task.aggregate(self.task.decode(x_NBd, self.task.views(batch)), batch)

    def _evaluate(self, batch: Batch, prefix: str, loss: Any, metrics: dict[int, MetricCollection]) -> Tensor:
        """Update the loss and the metrics of each horizon; return which samples are solved, ``[horizons, B]``."""
        window = self._window(self.eval_horizon)
        states = self.iterates(batch, sorted({*window, *metrics}))
        loss.update(self._window_loss({k: states[k] for k in window}, batch), weight=len(self.task.targets(batch)))
        self.log(f"{prefix}loss", loss, add_dataloader_idx=False)
        solved = []
        for horizon, collection in metrics.items():
            answer = self._answer(states[horizon], batch)
            collection.update(**self.task.metric_inputs(answer, batch))
            self.log_dict(collection, add_dataloader_idx=False)
            solved.append(self.task.correct(answer.argmax(dim=-1), batch))
        return torch.stack(solved)

    def _stop_if_nonfinite(self, loss: Tensor, batch: Batch, horizon: int) -> None:
        """Remember on the device when the loss first was not finite; read it at once on a CPU, now and then elsewhere."""
        self._bad_step = torch.where(loss.isfinite() | (self._bad_step >= 0), self._bad_step, self.global_step)
        if loss.device.type != "cpu" and self.global_step % _STEPS_BETWEEN_CHECKS:
            return
        if self._bad_step >= 0:
            broken = [name for name, parameter in self.named_parameters() if not parameter.isfinite().all()]
            where = f"parameter {broken[0]}" if broken else self.locate_nonfinite(batch, horizon)
            raise FloatingPointError(
                f"the loss of step {int(self._bad_step)} is not finite; first not finite: {where}. "
                "Use a smaller lr, trainer.gradient_clip_val, or a longer warm-up"
            )
