"""What a trained, coordinating model does when it is disturbed: solved rate, recovery, and whether a liar gives itself away.

Legend: K iterations, N agents, B batch.
"""

import re
from collections.abc import Mapping
from typing import Any, Protocol

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from callbacks.admm_diagnostics import IterationHistory, RecordsADMM
from callbacks.figure_style import figure_style
from callbacks.figures import publish_figure
from callbacks.intervention_figures import liar_figure, solved_figure

UNDISTURBED = "none"


class Disturbance(Protocol):
    """An object that ``admm_history`` takes as an intervention.

    It acts in the iterations ``first`` to ``last`` (None: to the end) if it has these attributes, else in all. If it has
    ``liars``, these are the numbers of the agents, one a sample, that it made lie in the last batch.
    """

    def validate(self, num_agents: int, steps: int) -> None: ...


class InterventionSuite(Callback):
    """Test a model again under each of several interventions, one at a time, and compare.

    The first batches of the main test set are run with recording on, undisturbed and with each intervention. Logged are, as
    ``test/intervention/<name>/...`` and over the samples of all ranks:

    - ``solved``: share of samples that are right after the last iteration; also for ``none``, the undisturbed run.
    - ``recovered``, for an intervention that ends before the last iteration, over the samples that end right when undisturbed:
      the share of those that end right.
    - ``recovery_iterations``: over those that recover, the mean number of iterations after the intervention's last one until the
      answer is right for good; 0 if it stayed right. A sample that the undisturbed run solves later still counts from there.
    - ``found``, for an intervention with liars: the share of samples in which the liar has the largest disagreement memory
      ``|u|`` of all N agents after the last iteration. Chance is 1/N.
    - ``found_by_change``: the same by the change of ``|u|`` against the undisturbed run, which only an oracle knows.

    A mean over no sample is not logged. The figures are ``interventions_test`` (all ranks) and, with liars, ``liars_test`` (the
    samples of rank zero).

    Args:
        interventions: what to try, by the name that stands in metrics and figures.
        steps: iterations of each run.
        batches: number of test batches.

    Raises:
        ValueError: if there are no interventions, a name is unfit, a number is not positive, an intervention's iterations lie
            outside of the run, or the module has no ``admm_history``.
    """

    def __init__(self, interventions: dict[str, Disturbance], steps: int, batches: int = 1) -> None:
        if min(steps, batches) < 1:
            raise ValueError(f"InterventionSuite needs positive numbers, got {steps=} and {batches=}")
        if not interventions:
            raise ValueError("InterventionSuite needs at least one intervention: leave the callback out")
        for name, intervention in interventions.items():
            _check(name, intervention, steps)
        self.interventions = interventions
        self.steps = steps
        self.batches = batches
        self._totals: dict[str, Tensor] = {}
        self._ranks: dict[str, list[Tensor]] = {}
        self._num_agents = 0

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if not isinstance(pl_module, RecordsADMM):
            raise ValueError(
                f"InterventionSuite needs a module with admm_history(batch, steps, interventions), which "
                f"{type(pl_module).__name__} has not: leave the callback out"
            )

    def on_test_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin all sums at zero, the same ones on every rank."""
        shapes: dict[str, tuple[int, ...]] = {f"{UNDISTURBED}/solved": (2, self.steps)}
        for name, intervention in self.interventions.items():
            shapes[f"{name}/solved"] = (2, self.steps)
            if self._end(intervention) is not None:
                shapes |= {f"{name}/recovered": (2,), f"{name}/recovery_iterations": (2,)}
            if hasattr(intervention, "liars"):
                shapes |= {f"{name}/found": (2,), f"{name}/found_by_change": (2,)}
        self._totals = {key: torch.zeros(shape, device=pl_module.device) for key, shape in shapes.items()}
        self._ranks = {}

    def on_test_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if dataloader_idx or batch_idx >= self.batches:
            return
        with torch.no_grad(), trainer.precision_plugin.forward_context():
            plain = pl_module.admm_history(batch, self.steps)
            self._num_agents = plain.memory.shape[1]
            self._add(f"{UNDISTURBED}/solved", plain.correct)
            for name, intervention in self.interventions.items():
                history = pl_module.admm_history(batch, self.steps, [intervention])
                self._add(f"{name}/solved", history.correct)
                self._add_recovery(name, self._end(intervention), plain, history)
                self._add_liars(name, getattr(intervention, "liars", None), plain, history)

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        curves: dict[str, Tensor] = {}
        for key, total in self._totals.items():
            sums, counts = trainer.strategy.reduce(total, reduce_op="sum")
            means = (sums / counts).cpu()
            if means.dim():
                curves[key.removesuffix("/solved")] = means
                means = means[-1]
            if not means.isnan():
                pl_module.log(f"test/intervention/{key}", means.to(pl_module.device), sync_dist=True)
        if trainer.is_global_zero:
            self._publish(trainer, curves)

    def _end(self, intervention: Any) -> int | None:
        """Return the last iteration of an intervention that ends before the run does."""
        last: int | None = getattr(intervention, "last", None)
        return last if last is not None and last < self.steps else None

    def _add(self, key: str, values: Tensor) -> None:
        """Add values of some samples, ``[..., samples]``, to the sum and the count of a mean."""
        counts = torch.full(values.shape[:-1], float(values.shape[-1]), device=values.device)
        self._totals[key] += torch.stack([values.float().sum(dim=-1), counts])

    def _add_recovery(self, name: str, end: int | None, plain: IterationHistory, history: IterationHistory) -> None:
        if end is None:
            return
        right_from = right_for_good(history.correct)[plain.correct[-1]]
        recovered = right_from <= self.steps
        self._add(f"{name}/recovered", recovered)
        self._add(f"{name}/recovery_iterations", (right_from[recovered] - end).clamp_min(0))

    def _add_liars(self, name: str, liars: Tensor | None, plain: IterationHistory, history: IterationHistory) -> None:
        if liars is None:
            return
        ranks = {
            "found": liar_ranks(history.memory[-1], liars),
            "found_by_change": liar_ranks((history.memory[-1] - plain.memory[-1]).abs(), liars),
        }
        for kind, ranks_B in ranks.items():
            self._add(f"{name}/{kind}", ranks_B == 1)
        self._ranks.setdefault(name, []).append(torch.stack(list(ranks.values())).cpu())

    def _publish(self, trainer: Trainer, curves: Mapping[str, Tensor]) -> None:
        windows = {
            name: (getattr(each, "first", 1), getattr(each, "last", None) or self.steps)
            for name, each in self.interventions.items()
        }
        with figure_style():
            publish_figure(trainer, solved_figure(curves, windows), "interventions_test")
            if self._ranks:
                ranks = {name: torch.cat(found, dim=1) for name, found in self._ranks.items()}
                publish_figure(trainer, liar_figure(ranks, self._num_agents), "liars_test")


def right_for_good(correct: Tensor) -> Tensor:
    """Return the first iteration, from 1, from which each sample is right and stays right; K + 1 if it ends wrong.

    Args:
        correct: whether the answer is right after each iteration, ``[K, B]``.
    """
    still_wrong_KB = (~correct).flip(0).int().cummax(dim=0).values
    return still_wrong_KB.sum(dim=0) + 1


def liar_ranks(score: Tensor, liars: Tensor) -> Tensor:
    """Return the rank of the liar of each sample among the agents, 1 for the highest score; ties count against the liar.

    Args:
        score: one number an agent, ``[N, B]``.
        liars: agent numbers, ``[B]``.
    """
    own_B = score[liars, torch.arange(len(liars), device=score.device)]
    return (score >= own_B).sum(dim=0)


def _check(name: str, intervention: Any, steps: int) -> None:
    """Refuse names that metrics or figures cannot bear, and iterations outside of the run."""
    if name == UNDISTURBED or not re.fullmatch(r"[\w.-]+", name):
        raise ValueError(
            f"intervention name {name!r} becomes part of a metric's name: use letters, digits, '.-_', not {UNDISTURBED!r}"
        )
    first, last = getattr(intervention, "first", 1), getattr(intervention, "last", None)
    if first > steps or (last or 0) > steps:
        window = f"from iteration {first}" if last is None else f"in the iterations {first} to {last}"
        raise ValueError(f"the intervention {name!r} acts {window}, but steps={steps}: use more steps or an earlier window")
