"""A diffusion transformer whose feed-forward layers are mixtures of experts, as a LightningModule.

Legend: B images, C channels, H and W pixels, T patches, K times, L layers.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from lightning_modules.dtop_p.moe import MoEAux
from lightning_modules.dtop_p.routed_module import RoutedModule
from lightning_modules.generative.counted_random import normal, uniform
from lightning_modules.generative.image_classifier import trained_classifier
from lightning_modules.generative.rectified_flow import euler_sample, flow_loss, guided, interpolate, logit_normal_mass
from lightning_modules.generative.sample_quality import HasImages, sample_quality
from lightning_modules.generative.time_deciles import DECILES, TimeDeciles
from lightning_modules.networks.diffusion_transformer import DiffusionTransformer

TIME, CLASS, NOISE, SAMPLE, EVALUATION = range(5)
"""Streams of random numbers; those after the last are the noises of an evaluation."""

MANY = 256


class MoEDiffusionModule(RoutedModule):
    r"""Images of a class from noise: a rectified flow whose transformer has a mixture of experts in every block.

    .. math::
        x_t = (1 - t) \, x_0 + t \, \epsilon, \qquad t = \operatorname{sigmoid}(z), \; z \sim \mathcal N(0, 1), \qquad
        \text{task} = \lVert v(x_t, t, \text{class}) - (\epsilon - x_0) \rVert^2 / (C H W)

    A batch has ``image`` ``[B, C, H, W]``, ``label`` ``[B]`` and ``seed`` int64 ``[B]``, of which all that is random of an image is
    made: a training set gives new seeds in each epoch, an evaluation the same ones each time. So results do not depend on batch
    size and number of processes, and a resumed run goes on exactly.

    An evaluation looks at each image at the middles of K equal parts of the time. Its ``loss`` and ``active`` experts weigh these
    by how often they occur in training; the test also tells both for each tenth of the time, ``test/loss_decile<j>`` and
    ``test/active_decile<j>``, 0 next to the data. The threshold is that of the last training step, also in sampling.

    With ``quality_samples`` the test trains a small classifier on the training images, always the same one, and logs how samples
    without guidance, which would trade variety for clarity, compare with the test images in its eyes, see
    :func:`~lightning_modules.generative.sample_quality.sample_quality`. ``test/frechet_of_training_images`` is the distance of as
    many training images: what a perfect model would have.

    Args:
        image_size: height and width; None takes the data's own.
        channels: C; None takes the data's own.
        num_classes: classes; None takes the data's own.
        patch: side of a patch.
        num_heads: heads of the attention.
        class_dropout: share of the training images whose class is hidden, so that guidance has something to guide away from.
        eval_times: K, a multiple of 10.
        sampling_steps: steps from noise to an image.
        guidance: weight of classifier-free guidance; 1 has none.
        quality_samples: images that the test makes to judge them; 0: none.
        checkpointing: compute blocks anew in the backward pass to save memory.
        **options: those of :class:`RoutedModule`.

    Raises:
        ValueError: if sizes are unknown, options do not fit together, or a batch has no ``seed``.

    Source: DTop-p (arXiv 2512.13996) names the model and its task; the objective is reconstructed from Esser et al. 2024
    (arXiv 2403.03206).
    """

    smoke: ClassVar[dict[str, Any]] = {
        **{"d_model": 32, "num_layers": 2, "num_heads": 2, "num_experts": 8, "expert_hidden": 16, "target": 2},
        "sampling_steps": 2,
    }

    def __init__(
        self,
        image_size: int | None = None,
        channels: int | None = None,
        num_classes: int | None = None,
        patch: int = 2,
        num_heads: int = 4,
        class_dropout: float = 0.1,
        eval_times: int = 10,
        sampling_steps: int = 25,
        guidance: float = 2.0,
        quality_samples: int = 0,
        checkpointing: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if image_size is None or channels is None or num_classes is None:
            raise ValueError("MoEDiffusionModule needs image_size, channels and num_classes when its data do not tell them")
        if not 0 <= class_dropout < 1:
            raise ValueError(f"class_dropout={class_dropout} must be a share from 0 to below 1")
        if eval_times < 1 or eval_times % DECILES:
            raise ValueError(f"eval_times={eval_times} must be a multiple of {DECILES}, to fall into tenths of the time")
        if sampling_steps < 1 or quality_samples < 0:
            raise ValueError(f"{sampling_steps=} must be positive and {quality_samples=} not negative")
        if guidance != 1 and class_dropout == 0:
            raise ValueError(f"guidance={guidance} needs a class_dropout above 0: the network must know images without a class")
        self.shape, self.num_classes = (channels, image_size, image_size), num_classes
        self.class_dropout, self.eval_times, self.quality_samples = class_dropout, eval_times, quality_samples
        self.sampling_steps, self.guidance = sampling_steps, guidance
        sizes = (image_size, channels, num_classes, patch, self.d_model, self.num_layers, num_heads)
        self.transformer = DiffusionTransformer(*sizes, self.feed_forward, checkpointing)
        self.loss_deciles = TimeDeciles()
        self.active_deciles = TimeDeciles() if self.routed else None

    @property
    def blocks(self) -> nn.ModuleList:
        return self.transformer.blocks

    def forward(self, image_BCHW: Tensor, t_B: Tensor, label_B: Tensor) -> Tensor:
        """Return the velocity, ``[B, C, H, W]``; the class ``num_classes`` means none."""
        return self._run(image_BCHW, t_B, label_B)[0]

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        seed_B = _seeds(batch)
        t_B = normal(seed_B, TIME).sigmoid()
        hidden_B = uniform(seed_B, CLASS) < self.class_dropout
        label_B = batch["label"].masked_fill(hidden_B, self.num_classes)
        loss_B, layers = self._flow(batch["image"], normal(seed_B, NOISE, self.shape), t_B, label_B)
        loss = loss_B.mean()
        self.log("train/loss", loss.detach(), prog_bar=True)
        return loss + self.auxiliary(layers)

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> dict[str, Tensor]:
        """Return ``counts``, the experts that each patch used at each time, ``[L, K * B, T]``; nothing without a mixture."""
        return self._evaluate(batch, "val")

    def test_step(self, batch: dict[str, Tensor], batch_idx: int) -> dict[str, Tensor]:
        """As :meth:`validation_step`."""
        return self._evaluate(batch, "test")

    def predict_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        """Return a new image of each class of the batch, ``[B, C, H, W]``."""
        return self.sample(batch["label"], _seeds(batch))

    @torch.no_grad()
    def sample(self, label_B: Tensor, seed_B: Tensor, steps: int | None = None, guidance: float | None = None) -> Tensor:
        """Make images of classes; the threshold stays as it is.

        Args:
            label_B: classes, int64 ``[B]``.
            seed_B: seed of the noise that each begins from, int64 ``[B]``.
            steps: steps from noise to an image; None: ``sampling_steps``.
            guidance: weight of classifier-free guidance; None: that of the module.

        Returns:
            ``[B, C, H, W]``.
        """
        guidance = self.guidance if guidance is None else guidance
        labels_2B = torch.cat([label_B, torch.full_like(label_B, self.num_classes)])

        def velocity(x_BCHW: Tensor, t_B: Tensor) -> Tensor:
            if guidance == 1:
                return self(x_BCHW, t_B, label_B)
            with_class, without = self(x_BCHW.repeat(2, 1, 1, 1), t_B.repeat(2), labels_2B).chunk(2)
            return guided(with_class, without, guidance)

        return euler_sample(velocity, normal(seed_B, SAMPLE, self.shape), self.sampling_steps if steps is None else steps)

    def on_test_epoch_end(self) -> None:
        """Log what all models of this kind do, what belongs to the tenths of the time, and the quality of samples."""
        super().on_test_epoch_end()
        for name, metric in {"loss": self.loss_deciles, "active": self.active_deciles}.items():
            if metric is not None:
                self.log_dict({f"test/{name}_decile{place}": value for place, value in enumerate(metric.compute())})
                metric.reset()
        if self.quality_samples:
            self.log_dict({f"test/{name}": value for name, value in self._quality().items()})

    def _run(self, image_BCHW: Tensor, t_B: Tensor, label_B: Tensor) -> tuple[Tensor, list[MoEAux]]:
        return self.transformer(image_BCHW, t_B, label_B, self.thresholds())

    def _flow(self, image_BCHW: Tensor, noise_BCHW: Tensor, t_B: Tensor, label_B: Tensor) -> tuple[Tensor, list[MoEAux]]:
        """Return the loss of each image, ``[B]``, and what the layers told."""
        point_BCHW, target_BCHW = interpolate(image_BCHW, noise_BCHW, t_B)
        velocity_BCHW, layers = self._run(point_BCHW, t_B, label_B)
        return flow_loss(velocity_BCHW, target_BCHW), layers

    def _evaluate(self, batch: dict[str, Tensor], stage: str) -> dict[str, Tensor]:
        image_BCHW, seed_B, K = batch["image"], _seeds(batch), self.eval_times
        edges = torch.linspace(0, 1, K + 1, dtype=torch.float64, device=self.device)
        time_K, mass_K = ((edges[1:] + edges[:-1]) / 2).float(), logit_normal_mass(edges).float()
        losses, counts = [], []
        for place in range(K):
            noise_BCHW = normal(seed_B, EVALUATION + place, self.shape)
            loss_B, layers = self._flow(image_BCHW, noise_BCHW, time_K[place].expand_as(seed_B), batch["label"])
            losses.append(loss_B)
            counts += [torch.stack([aux.counts for aux in layers])] if self.routed else []
        loss_S, (t_S, weight) = torch.cat(losses), (each_K.repeat_interleave(len(seed_B)) for each_K in (time_K, mass_K))
        counts_LST = torch.cat(counts, dim=1) if self.routed else None
        if stage == "test":
            self.loss_deciles.update(loss_S, t_S)
        if counts_LST is None:
            return self.evaluated(stage, loss_S, weight, None)
        if stage == "test" and self.active_deciles is not None:
            self.active_deciles.update(counts_LST.float().mean(dim=(0, 2)), t_S)
        return self.evaluated(stage, loss_S, weight, counts_LST, weight[:, None].expand_as(counts_LST[0]))

    def _quality(self) -> dict[str, Tensor]:
        data = self.trainer.datamodule  # type: ignore[attr-defined]
        if not isinstance(data, HasImages):
            raise ValueError(
                f"quality_samples needs a data module with labelled_images, which {type(data).__name__} has not: use 0"
            )
        images, labels = data.labelled_images("train")
        classifier = trained_classifier(images.to(self.device), labels.to(self.device), self.num_classes)
        mine = slice(self.trainer.global_rank, None, self.trainer.world_size)
        real = _batches(*data.labelled_images("test"), mine)
        found = sample_quality(classifier, real, self._samples(mine))
        known = sample_quality(classifier, real, _batches(images[: self.quality_samples], labels[: self.quality_samples], mine))
        return {**found, "frechet_of_training_images": known["frechet_classifier_features"]}

    def _samples(self, mine: slice) -> Iterator[tuple[Tensor, Tensor]]:
        """Make this rank's share of ``quality_samples``, equally many of each class."""
        seed_n = torch.arange(self.quality_samples, device=self.device)[mine]
        for seed_B in seed_n.tensor_split(-(-self.quality_samples // (MANY * self.trainer.world_size))):  # alike on all ranks
            label_B = seed_B % self.num_classes
            yield self.sample(label_B, seed_B, guidance=1.0), label_B


def _batches(images: Tensor, labels: Tensor, mine: slice) -> list[tuple[Tensor, Tensor]]:
    """Cut some rows of the images and their classes into batches."""
    return list(zip(images[mine].split(MANY), labels[mine].split(MANY), strict=True))


def _seeds(batch: dict[str, Tensor]) -> Tensor:
    if "seed" not in batch:
        raise ValueError("MoEDiffusionModule needs batches with a `seed` for each image: use LabelledImageDataModule, or add one")
    return batch["seed"]
