"""A small classifier whose features judge generated images (plain torch).

Legend: B images, C channels, H and W pixels, F features.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy


class ImageClassifier(nn.Module):
    """Three convolutions, the second and third with half the resolution, their mean over places, and two dense layers.

    Args:
        channels: channels C of the images.
        num_classes: classes.
        num_features: units F of the hidden dense layer, which are the features.
        width: channels of the first convolution; the others have twice as many.
    """

    def __init__(self, channels: int = 1, num_classes: int = 10, num_features: int = 64, width: int = 16) -> None:
        super().__init__()
        self.num_features = num_features
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(2 * width, 2 * width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(8 * width, num_features),
            nn.ReLU(),
        )
        self.head = nn.Linear(num_features, num_classes)

    def features(self, image_BCHW: Tensor) -> Tensor:
        """Return what the last layer reads, ``[B, F]``."""
        return self.body(image_BCHW)

    def forward(self, image_BCHW: Tensor) -> Tensor:
        """Return class logits, ``[B, classes]``."""
        return self.head(self.features(image_BCHW))


def trained_classifier(
    image_nCHW: Tensor,
    label_n: Tensor,
    num_classes: int,
    steps: int = 600,
    batch_size: int = 128,
    lr: float = 2e-3,
    seed: int = 0,
) -> ImageClassifier:
    """Train a classifier by Adam on the device of the images; the same images and seed give the same classifier.

    Batches are drawn with replacement. The global random numbers are left as they were, and it works inside of inference mode.

    Args:
        image_nCHW: training images, ``[n, C, H, W]``.
        label_n: their classes, int64 ``[n]``.
        num_classes: classes.
        steps: batches.
        batch_size: images of a batch.
        lr: learning rate at the start; it falls linearly to 0.
        seed: seed of weights and batches.

    Returns:
        The classifier in evaluation mode.
    """
    device = image_nCHW.device
    with torch.inference_mode(False), torch.enable_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        classifier = ImageClassifier(image_nCHW.shape[1], num_classes)
        order = torch.randint(len(label_n), (steps, batch_size)).to(device)
        classifier.to(device)
        optimizer = torch.optim.Adam(classifier.parameters(), lr)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)
        for rows in order:
            loss = cross_entropy(classifier(image_nCHW[rows].clone()), label_n[rows].clone())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return classifier.eval()
