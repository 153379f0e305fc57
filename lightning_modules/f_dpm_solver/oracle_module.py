"""Samplers on data whose best denoiser is known, without training."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from lightning_modules.f_dpm_solver.denoiser import Denoiser
from lightning_modules.f_dpm_solver.gaussian_mixture import GaussianMixtureOracle
from lightning_modules.f_dpm_solver.sampler_module import SamplerModule
from lightning_modules.f_dpm_solver.schedules import EDMSchedule


class MixtureOracleModule(SamplerModule):
    """The exact denoiser of a mixture of round Gaussians in the place of a trained network; its test compares samplers.

    Args:
        means: centres ``[K, d]``; None takes the data's own.
        stds: standard deviations ``[K]``; None takes the data's own.
        weights: weights ``[K]``; None takes the data's own.
        **options: those of :class:`SamplerModule`.

    Raises:
        ValueError: if the mixture is unknown or wrong.
    """

    smoke: ClassVar[dict[str, Any]] = {"num_samples": 24, "reference_steps": 4, "nfe": [5, 6]}

    def __init__(
        self,
        means: list[list[float]] | None = None,
        stds: list[float] | None = None,
        weights: list[float] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if means is None or stds is None or weights is None:
            raise ValueError("MixtureOracleModule needs means, stds and weights when its data do not tell them")
        self.save_hyperparameters()
        self.oracle = GaussianMixtureOracle(torch.tensor(means), torch.tensor(stds), torch.tensor(weights), EDMSchedule())

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.oracle.means_Kd.shape[1],)

    def denoiser(self) -> Denoiser:
        return Denoiser(self.oracle, "sample", EDMSchedule())

    def test_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        """The comparison after the last batch needs none."""
