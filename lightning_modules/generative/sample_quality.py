"""How good generated images are, judged by a classifier."""

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor
from torchmetrics import MeanMetric

from lightning_modules.generative.frechet_distance import FrechetFeatureDistance
from lightning_modules.generative.image_classifier import ImageClassifier

Batches = Iterable[tuple[Tensor, Tensor]]


@runtime_checkable
class HasImages(Protocol):
    """A data module that hands out all images ``[n, C, H, W]`` of ``train`` or ``test`` and their classes ``[n]``."""

    def labelled_images(self, split: str) -> tuple[Tensor, Tensor]: ...


@torch.no_grad()
def sample_quality(classifier: ImageClassifier, real: Batches, made: Batches) -> dict[str, Tensor]:
    """Compare generated images with real ones.

    Args:
        classifier: a classifier that was trained on images of the same kind.
        real: batches of images ``[B, C, H, W]`` and their classes ``[B]``; with several processes, this rank's share.
        made: the same of generated images and the classes that were asked for.

    Returns:
        ``frechet_classifier_features``, see :class:`FrechetFeatureDistance`; ``classifier_accuracy`` on the real images; and
        ``sample_accuracy``, how often the classifier sees the class that was asked for.
    """
    device = classifier.head.weight.device
    distance = FrechetFeatureDistance(classifier.num_features).to(device)
    accuracies = {"classifier_accuracy": MeanMetric().to(device), "sample_accuracy": MeanMetric().to(device)}
    for batches, is_real, accuracy in zip((real, made), (True, False), accuracies.values(), strict=True):
        for image_BCHW, label_B in batches:
            features_BF = classifier.features(image_BCHW.to(device))
            distance.update(features_BF, real=is_real)
            accuracy.update((classifier.head(features_BF).argmax(dim=1) == label_B.to(device)).float())
    return {"frechet_classifier_features": distance.compute(), **{name: metric.compute() for name, metric in accuracies.items()}}
