"""What self-interference cancellation and the gate of a gauge network really do while it trains."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from callbacks.figure_style import figure_style
from callbacks.figures import publish_figure
from callbacks.gauge_figures import alignment_figure, parallel_figure, phase_figure

BINS = 40

_SCALARS = ("parallel_fraction", "eta", "gate_share", "dirichlet_energy")


@runtime_checkable
class Diagnosable(Protocol):
    """A module that tells for each of its layers what it does with the E' edges of a graph that are no self-loops.

    A layer tells ``parallel_fraction``, ``alignment``, ``angle`` and ``phase``, each ``[E']`` in the order of the graph's
    ``edge_index``, and the scalars ``eta``, ``gate_share`` and ``dirichlet_energy``.
    """

    def diagnose(self, batch: Any) -> Sequence[Mapping[str, Tensor]]: ...


class SICMonitor(Callback):
    """Measure the layers of a gauge network on the first graph of some validations, and draw what was found when training ends.

    Logged for each layer, from 0, are

    - ``sic/parallel_fraction_<layer>``: share of a message's energy that the receiving node has already, mean over all links;
    - ``sic/eta_<layer>``: effective strength of the cancellation;
    - ``sic/gate_share_<layer>``: mean value of the gate;
    - ``sic/dirichlet_energy_<layer>``: how much the states differ along the edges, which oversmoothing lets vanish.

    The figures are ``parallel_fraction`` over epochs, and of the last measurement ``alignment`` (histograms of the links inside a
    class and between classes) and ``phases`` (histograms of the edges' phases, and of the angles between neighbours that are left
    after transport, if not all phases are 0). Self-loops do not count.

    Args:
        every_n_epochs: measure at the validations of every so many epochs.

    Raises:
        ValueError: if the number is not positive, or the module has no ``diagnose``.
    """

    def __init__(self, every_n_epochs: int = 10) -> None:
        if every_n_epochs < 1:
            raise ValueError(f"SICMonitor needs a positive every_n_epochs, got {every_n_epochs}")
        self.every_n_epochs = every_n_epochs
        self._history: dict[int, list[dict[str, float]]] = {}
        self._histograms: list[dict[str, Tensor]] = []

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if not isinstance(pl_module, Diagnosable):
            raise ValueError(
                f"SICMonitor needs a module with diagnose(batch), which {type(pl_module).__name__} has not: leave the callback out"
            )

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        epoch = trainer.current_epoch
        if trainer.sanity_checking or batch_idx or dataloader_idx or epoch % self.every_n_epochs:
            return
        with torch.no_grad():
            layers = pl_module.diagnose(batch)
        found = torch.stack([torch.stack([layer[name].float().mean() for name in _SCALARS]) for layer in layers])
        found = trainer.strategy.reduce(found, reduce_op="mean")
        values = [dict(zip(_SCALARS, row, strict=True)) for row in found.tolist()]
        self._history[epoch] = values
        self._histograms = [_histograms(layer, _within_class(batch)) for layer in layers]
        named = {f"sic/{name}_{number}": value for number, row in enumerate(values) for name, value in row.items()}
        pl_module.log_dict(named, on_step=False, on_epoch=True, add_dataloader_idx=False, batch_size=1)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self._history or not trainer.is_global_zero:
            return
        with figure_style():
            publish_figure(trainer, parallel_figure(self._history), "parallel_fraction")
            publish_figure(trainer, alignment_figure(self._histograms), "alignment")
            if (phases := phase_figure(self._histograms)) is not None:
                publish_figure(trainer, phases, "phases")

    def state_dict(self) -> dict[str, Any]:
        return {"history": self._history, "histograms": self._histograms}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._history, self._histograms = state_dict["history"], state_dict["histograms"]


def _within_class(batch: Any) -> Tensor:
    """Return whether each link joins nodes of one class, ``[E']``."""
    source_E, target_E = batch.edge_index[:, batch.edge_index[0] != batch.edge_index[1]]
    return (batch.y[source_E] == batch.y[target_E]).cpu()


def _histograms(layer: Mapping[str, Tensor], same_E: Tensor) -> dict[str, Tensor]:
    """Count the links of a layer by kind, all ``[BINS]``: alignments in [-1, 1], phases and angles in [-π, π]."""
    alignment_E = layer["alignment"].float().cpu().clamp(-1, 1)
    phase_E, angle_E = layer["phase"].float().cpu(), layer["angle"].float().cpu()
    wrapped_E = torch.atan2(phase_E.sin(), phase_E.cos())
    counts = {"phases_differ": (phase_E.abs() > 1e-6).any()}
    for kind, chosen_E in (("within", same_E), ("between", ~same_E)):
        counts[kind] = torch.histc(alignment_E[chosen_E], BINS, -1, 1)
        counts[f"phase_{kind}"] = torch.histc(wrapped_E[chosen_E], BINS, -torch.pi, torch.pi)
        counts[f"angle_{kind}"] = torch.histc(angle_E[chosen_E], BINS, -torch.pi, torch.pi)
    return counts
