"""A small diffusion model as a LightningModule; its test compares samplers.

Legend: B samples, K noise levels; a sample is ``[C, H, W]`` or ``[d]``.
"""

from typing import Any, ClassVar

import torch
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torchmetrics import MeanMetric

from lightning_modules.f_dpm_solver.denoiser import Denoiser
from lightning_modules.f_dpm_solver.edm_preconditioning import Preconditioned, Prediction
from lightning_modules.f_dpm_solver.sampler_module import EVALUATION, LEVEL, NOISE, SamplerModule, seeds
from lightning_modules.f_dpm_solver.schedules import EDMSchedule
from lightning_modules.generative.counted_random import normal
from lightning_modules.optimizer import adamw


class DiffusionModule(SamplerModule):
    r"""A network learns to predict data from data with noise.

    .. math::
        \ell = c_\text{out}^{-2} \, \tfrac1d \lVert D(y + \sigma n, \sigma) - y \rVert^2, \qquad
        \ln \sigma \sim \mathcal N(\text{noise\_mean}, \text{noise\_std}^2), \; n \sim \mathcal N(0, I)

    D and :math:`c_\text{out}` are those of :class:`~lightning_modules.f_dpm_solver.edm_preconditioning.Preconditioned`; for ``eps``
    and ``v`` this is the plain square error of the predicted noise or velocity.

    A batch has ``image`` ``[B, C, H, W]`` or ``point`` ``[B, d]``, and ``seed`` int64 ``[B]``, of which the noise is made.
    Validation and test look at each sample at K fixed noise levels, the middles of K equal parts of their distribution in training.
    The test then compares samplers, see :class:`~lightning_modules.f_dpm_solver.sampler_module.SamplerModule`; put
    ``callbacks.EMAWeights`` into the trainer and it does so with averaged weights.

    Args:
        network: maps noisy samples and :math:`\tfrac14 \ln \sigma`, ``[B]``, to what is predicted; has the ``shape`` of a sample.
        prediction: ``edm``, ``eps`` or ``v``: what the network predicts.
        sigma_data: standard deviation of the data.
        noise_mean: mean of the logarithm of the noise level in training.
        noise_std: its standard deviation.
        eval_levels: K.
        lr: learning rate after the warm-up; it falls along a cosine to a hundredth at ``trainer.max_steps``.
        weight_decay: weight decay of matrices.
        warmup_share: share of the steps with a rising learning rate.
        **options: those of :class:`SamplerModule`.

    Raises:
        ValueError: if a number does not fit.

    Source: EDM (arXiv 2206.00364), section 5.
    """

    smoke: ClassVar[dict[str, Any]] = {"num_samples": 24, "reference_steps": 4, "nfe": [5, 6], "classifier_steps": 5}

    def __init__(
        self,
        network: nn.Module,
        prediction: Prediction = "edm",
        sigma_data: float = 0.5,
        noise_mean: float = -1.2,
        noise_std: float = 1.2,
        eval_levels: int = 8,
        lr: float = 2e-3,
        weight_decay: float = 0.01,
        warmup_share: float = 0.05,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if eval_levels < 1 or noise_std <= 0:
            raise ValueError(f"{eval_levels=} and {noise_std=} must be positive")
        self.save_hyperparameters(ignore=["network"])
        self.model = Preconditioned(network, prediction, sigma_data)
        self._shape = tuple(network.shape)  # type: ignore[arg-type]
        self.noise_mean, self.noise_std, self.eval_levels = noise_mean, noise_std, eval_levels
        self.lr, self.weight_decay, self.warmup_share = lr, weight_decay, warmup_share
        self.losses = nn.ModuleDict({stage: MeanMetric() for stage in ("val_", "test_")})

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    def denoiser(self) -> Denoiser:
        return Denoiser(self, "sample", EDMSchedule(), edm_coordinates=True, net_dtype=torch.float32)

    def forward(self, x: Tensor, sigma_B: Tensor) -> Tensor:
        """Predict the data y from :math:`y + \\sigma n`, ``[B, ...]``, at noise levels ``[B]``."""
        return self.model(x, sigma_B.to(x.dtype))

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        seed_B = seeds(batch)
        sigma_B = self._level(normal(seed_B, LEVEL))
        loss = self.model.loss(_clean(batch), normal(seed_B, NOISE, self.shape), sigma_B).mean()
        self.log("train/loss", loss.detach(), prog_bar=True)
        return loss

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        self._evaluate(batch, "val")

    def test_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        self._evaluate(batch, "test")

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        return adamw(
            self.parameters(),
            self.lr,
            self.weight_decay,
            warmup_share=self.warmup_share,
            min_lr_ratio=0.01,
            max_steps=self.trainer.max_steps,
            max_epochs=self.trainer.max_epochs,
            decay_vectors=False,
        )

    def _level(self, standard: Tensor) -> Tensor:
        return (self.noise_mean + self.noise_std * standard).exp()

    def _evaluate(self, batch: dict[str, Tensor], stage: str) -> None:
        seed_B, clean, K = seeds(batch), _clean(batch), self.eval_levels
        level_K = self._level(torch.special.ndtri((torch.arange(K, device=self.device) + 0.5) / K))
        for place in range(K):
            noise = normal(seed_B, EVALUATION + place, self.shape)
            self.losses[f"{stage}_"].update(self.model.loss(clean, noise, level_K[place].expand_as(seed_B)))  # type: ignore[operator]
        self.log(f"{stage}/loss", self.losses[f"{stage}_"], prog_bar=stage == "val")  # type: ignore[arg-type]


def _clean(batch: dict[str, Tensor]) -> Tensor:
    return batch["image"] if "image" in batch else batch["point"]
