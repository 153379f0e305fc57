"""A LightningModule whose test compares samplers at equal numbers of network calls.

Legend: B samples of a batch, n all samples, F features; a sample is ``[C, H, W]`` or ``[d]``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Protocol, runtime_checkable

import torch
from lightning import LightningModule
from torch import Tensor
from torchmetrics import MeanMetric, MeanSquaredError, Metric

from lightning_modules.f_dpm_solver.competitors import COMPETITORS, NoiseRange
from lightning_modules.f_dpm_solver.denoiser import Denoiser
from lightning_modules.generative.counted_random import normal
from lightning_modules.generative.frechet_distance import FrechetFeatureDistance
from lightning_modules.generative.image_classifier import trained_classifier
from lightning_modules.generative.kernel_distance import KernelFeatureDistance
from lightning_modules.generative.sample_quality import HasImages

LEVEL, NOISE, SAMPLE, EVALUATION = range(4)
"""Streams of random numbers; those from the last on are the noises of an evaluation."""

MANY = 500

OWN = ["ddim", "f_dpm", "f_dpm_2", "eps_ms2", "eps_ms3", "dpmpp_2s", "dpmpp_2m", "dpmpp_3m", "unipc_code", "heun"]
"""Samplers that need no further package."""


@runtime_checkable
class HasPoints(Protocol):
    """A data module that hands out all points ``[n, d]`` of ``train``, ``val`` or ``test``."""

    def points(self, split: str) -> Tensor: ...


class Judge:
    """Measures how samples differ from the data, in features.

    The kernel sees features that are divided by their root mean square over the data.

    Args:
        features: maps samples ``[B, ...]`` to features ``[B, F]``.
        data: all real samples, ``[n, ...]``.
        mine: which of them this process adds to the sums over all processes.
        frechet_name: what the Fréchet distance is called, which tells the features.
    """

    def __init__(self, features: Callable[[Tensor], Tensor], data: Tensor, mine: slice, frechet_name: str) -> None:
        features_nF = torch.cat([features(part) for part in data.split(MANY)])
        self.features, self.scale = features, 1 / features_nF.square().mean().sqrt()
        size = features_nF.shape[1]
        self.metrics: dict[str, Metric] = {
            frechet_name: FrechetFeatureDistance(size).to(data.device),
            "mmd": KernelFeatureDistance(size).to(data.device),
        }
        self._add(self.metrics, features_nF[mine], real=True)

    def judge(self, made: list[Tensor]) -> dict[str, Tensor]:
        """Return the distances of generated samples from the real ones; all processes call it together, each with its own."""
        metrics = deepcopy(self.metrics)
        for samples in made:
            self._add(metrics, self.features(samples), real=False)
        return {name: metric.compute() for name, metric in metrics.items()}

    def _add(self, metrics: dict[str, Metric], features_nF: Tensor, real: bool) -> None:
        for part in features_nF.split(MANY):
            for name, metric in metrics.items():
                metric.update(part * self.scale if name == "mmd" else part, real=real)


class SamplerModule(LightningModule, ABC):
    r"""A model of data in noise, and samplers that follow its flow from noise to data.

    A subclass says what the :attr:`shape` of a sample is and gives the :meth:`denoiser`.

    Everything begins from the same noise, which belongs to the number of a sample: results do not depend on batch size and number
    of processes. For each sampler and each number n of network calls the test logs

    =============================== ============================================================================================
    ``test/<sampler>/nfe_<n>/…``
    =============================== ============================================================================================
    ``frechet_classifier_features`` squared Fréchet distance from the training images, in the features of a small classifier
                                    that the test trains on them; **not** the FID of papers
    ``frechet_coordinates``         for points: the same of the points themselves
    ``mmd``                         squared maximum mean discrepancy in the same features, divided by their root mean square,
                                    with the kernel of KID
    ``rmse_to_reference``           root mean square distance from the solution that all samplers converge to
    ``calls``                       network calls that were counted
    =============================== ============================================================================================

    and the first two of that solution itself as ``test/reference/…``.

    Args:
        samplers: which ones, see :data:`~lightning_modules.f_dpm_solver.competitors.COMPETITORS`; None: those that need no further
            package.
        nfe: numbers of network calls.
        num_samples: samples of a comparison; 0: none is made.
        sigma_max: noise level at the beginning.
        sigma_min: noise level at the end, positive.
        rho: levels between are equally spaced in their 1/rho-th power.
        reference_steps: steps of Runge-Kutta, of four calls, of the solution that all samplers converge to.
        sampler: the sampler of :meth:`sample` and of predictions.
        sampling_nfe: its network calls.
        classifier_steps: training steps of the classifier that judges images.

    Raises:
        ValueError: if a sampler is unknown or a number does not fit.
    """

    def __init__(
        self,
        samplers: list[str] | None = None,
        nfe: list[int] | None = None,
        num_samples: int = 2000,
        sigma_max: float = 80.0,
        sigma_min: float = 0.002,
        rho: float = 7.0,
        reference_steps: int = 100,
        sampler: str = "f_dpm",
        sampling_nfe: int = 8,
        classifier_steps: int = 600,
    ) -> None:
        super().__init__()
        self.samplers, self.nfe = samplers or OWN, nfe or [5, 6, 8, 10]
        unknown = [name for name in [*self.samplers, sampler] if name not in COMPETITORS]
        if unknown:
            raise ValueError(f"unknown sampler {', '.join(unknown)}; there are: {', '.join(COMPETITORS)}")
        if min(*self.nfe, sampling_nfe) < 2 or num_samples < 0 or reference_steps < 1:
            raise ValueError(
                f"nfe={self.nfe} and {sampling_nfe=} must be at least 2, {num_samples=} not negative, {reference_steps=} positive"
            )
        if not 0 < sigma_min < sigma_max:
            raise ValueError(f"need 0 < sigma_min < sigma_max, got {sigma_min=} and {sigma_max=}: networks know no level 0")
        self.num_samples, self.reference_steps, self.classifier_steps = num_samples, reference_steps, classifier_steps
        self.noise_range = NoiseRange(sigma_max, sigma_min, rho)
        self.sampler, self.sampling_nfe = sampler, sampling_nfe

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of a sample."""

    @abstractmethod
    def denoiser(self) -> Denoiser:
        """Return the network as samplers call it, for EDM's schedule, whose times are noise levels."""

    @torch.no_grad()
    def sample(self, seed_B: Tensor, sampler: str | None = None, nfe: int | None = None) -> Tensor:
        """Make samples, ``[B, ...]``.

        Args:
            seed_B: seed of the noise that each begins from, int64 ``[B]``.
            sampler: name of the sampler; None: the module's own.
            nfe: network calls; None: the module's own.
        """
        noise = normal(seed_B, SAMPLE, self.shape)
        return self.noise_range.sample(sampler or self.sampler, self.denoiser(), noise, nfe or self.sampling_nfe)[0]

    def predict_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        """Return as many new samples as the batch has, ``[B, ...]``."""
        return self.sample(seeds(batch))

    def on_test_epoch_end(self) -> None:
        if self.num_samples:
            self.log_dict({f"test/{name}": value for name, value in self.compare().items()})

    @torch.no_grad()
    def compare(self) -> dict[str, Tensor | float]:
        """Compare the samplers; all processes call it together, each makes its share of the samples.

        Returns:
            ``<sampler>/nfe_<n>/<metric>`` and ``reference/<metric>``.
        """
        judge, found = self._judge()
        share_n = torch.arange(self.num_samples, device=self.device)[self._mine]
        parts = -(-self.num_samples // (MANY * self.trainer.world_size))  # alike on all ranks
        noises = [normal(seed_B, SAMPLE, self.shape) for seed_B in share_n.tensor_split(parts)]
        ends = [self.noise_range.reference(self.denoiser(), noise, self.reference_steps).to(noise.dtype) for noise in noises]
        found |= {f"reference/{name}": value for name, value in judge.judge(ends).items()}
        for name in self.samplers:
            for nfe in self.nfe:
                made = [self.noise_range.sample(name, self.denoiser(), noise, nfe) for noise in noises]
                distance = MeanSquaredError(squared=False).to(self.device)
                for (samples, _), end in zip(made, ends, strict=True):
                    distance.update(samples.contiguous(), end)
                distances = judge.judge([samples for samples, _ in made])
                values = {**distances, "rmse_to_reference": distance.compute(), "calls": float(made[0][1])}
                found |= {f"{name}/nfe_{nfe}/{metric}": value for metric, value in values.items()}
        return found

    @property
    def _mine(self) -> slice:
        return slice(self.trainer.global_rank, None, self.trainer.world_size)

    def _judge(self) -> tuple[Judge, dict[str, Any]]:
        """Return a judge that knows the training data, and what else there is to log."""
        data = self.trainer.datamodule  # type: ignore[attr-defined]
        if isinstance(data, HasPoints):
            return Judge(lambda samples: samples, data.points("train").to(self.device), self._mine, "frechet_coordinates"), {}
        if not isinstance(data, HasImages):
            raise ValueError(
                f"num_samples needs a data module with labelled_images or points, which {type(data).__name__} has not: use 0"
            )
        images, labels = (part.to(self.device) for part in data.labelled_images("train"))
        classifier = trained_classifier(images, labels, int(labels.max()) + 1, self.classifier_steps)
        judge = Judge(classifier.features, images, self._mine, "frechet_classifier_features")
        accuracy = MeanMetric().to(self.device)
        test_images, test_labels = (part[self._mine].to(self.device) for part in data.labelled_images("test"))
        for image_BCHW, label_B in zip(test_images.split(MANY), test_labels.split(MANY), strict=True):
            accuracy.update((classifier(image_BCHW).argmax(dim=1) == label_B).float())
        return judge, {"classifier_accuracy": accuracy.compute()}


def seeds(batch: dict[str, Tensor]) -> Tensor:
    """Return the seeds of a batch, ``[B]``.

    Raises:
        ValueError: if there are none.
    """
    if "seed" not in batch:
        raise ValueError("batches need a `seed` for each sample: use LabelledImageDataModule or PointCloudDataModule, or add one")
    return batch["seed"]
