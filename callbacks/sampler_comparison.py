"""Draw what a test measured and what it looks like when samplers compete at equal numbers of network calls."""

from typing import Any, Protocol, runtime_checkable

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from callbacks.figure_style import figure_style
from callbacks.figures import publish_figure
from callbacks.sampler_figures import curve_figure, sheet_figure


@runtime_checkable
class ComparesSamplers(Protocol):
    """A module that makes samples ``[B, ...]`` from seeds by samplers with names, with a number of network calls."""

    samplers: list[str]
    nfe: list[int]

    def sample(self, seed_B: Tensor, sampler: str | None = None, nfe: int | None = None) -> Tensor: ...


class DiffusionCurves(Callback):
    """Draw what the test logged as ``test/<sampler>/nfe_<n>/<metric>`` against n: the figure ``samplers``.

    A metric that was not logged is left out; without any there is no figure. A level ``test/reference/<metric>`` is a line.
    """

    quantities = {
        "frechet_classifier_features": "Fréchet distance of classifier features",
        "frechet_coordinates": "Fréchet distance of coordinates",
        "mmd": "squared MMD",
        "rmse_to_reference": "RMSE to the converged solution",
    }

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        _refuse_others(self, pl_module)

    def on_test_end(self, trainer: Trainer, pl_module: Any) -> None:
        found = {name: float(value) for name, value in trainer.callback_metrics.items()}
        values: dict[str, Any] = {}
        for metric, title in self.quantities.items():
            curves = {
                name: {nfe: found[key] for nfe in pl_module.nfe if (key := f"test/{name}/nfe_{nfe}/{metric}") in found}
                for name in pl_module.samplers
            }
            if any(curves.values()):
                values[title] = curves
        levels = {title: found[f"test/reference/{m}"] for m, title in self.quantities.items() if f"test/reference/{m}" in found}
        if values and trainer.is_global_zero:
            with figure_style():
                publish_figure(trainer, curve_figure(values, levels), "samplers")


class DiffusionSheet(Callback):
    """Draw samples when a test ends, the figure ``sampler_sheet``: a row a sampler, a column a number of network calls.

    All begin from the same noise. All processes make them, the first one draws.

    Args:
        samples: samples of each cell; for points of the plane a few hundred.
        seed: number of the first noise.

    Raises:
        ValueError: if there are no samples, or the module compares no samplers.
    """

    def __init__(self, samples: int = 6, seed: int = 0) -> None:
        if samples < 1:
            raise ValueError(f"DiffusionSheet needs a positive number of samples, got {samples}")
        self.samples, self.seed = samples, seed

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        _refuse_others(self, pl_module)

    def on_test_end(self, trainer: Trainer, pl_module: Any) -> None:
        seed_B = torch.arange(self.seed, self.seed + self.samples, device=pl_module.device)
        images = [[pl_module.sample(seed_B, name, nfe) for nfe in pl_module.nfe] for name in pl_module.samplers]
        if trainer.is_global_zero:
            with figure_style():
                columns = [f"{nfe} calls" for nfe in pl_module.nfe]
                publish_figure(trainer, sheet_figure(images, pl_module.samplers, columns), "sampler_sheet")


def _refuse_others(callback: Callback, module: LightningModule) -> None:
    if not isinstance(module, ComparesSamplers):
        raise ValueError(
            f"{type(callback).__name__} needs a module with samplers, nfe and sample, which {type(module).__name__} has not"
        )
