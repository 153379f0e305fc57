"""Convolutional classifiers of grey images, the baselines of the agents on MNIST (plain torch).

Legend: B batch, H and W pixels.
"""

from torch import Tensor, nn


def _convolutions(channels: tuple[int, int]) -> nn.Sequential:
    """Two 3x3 convolutions with ReLU and a max-pooling between them; features have half the size of the image."""
    return nn.Sequential(
        nn.Conv2d(1, channels[0], kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(channels[0], channels[1], kernel_size=3, padding=1),
        nn.ReLU(),
    )


class PatchCNN(nn.Module):
    """Two convolutions, an adaptive average pool to ``pool`` x ``pool`` and two dense layers; takes images of any size.

    The pooled cells grow with the image, so a frame around a picture moves and thins everything that the dense layers see.

    Args:
        channels: channels of the two convolutions.
        hidden: units of the hidden dense layer.
        pool: cells per side of the pooled features.
        num_classes: number of classes.

    The defaults have 421 642 parameters, ``channels=(8, 16), hidden=32`` has 26 698.
    """

    def __init__(self, channels: tuple[int, int] = (32, 64), hidden: int = 128, pool: int = 7, num_classes: int = 10) -> None:
        super().__init__()
        self.convolutions = _convolutions(channels)
        self.head = nn.Sequential(
            nn.AdaptiveAvgPool2d(pool),
            nn.Flatten(),
            nn.Linear(channels[1] * pool**2, hidden),
            nn.ReLU(),
            nn.Linear(hidden, num_classes),
        )

    def forward(self, image_BHW: Tensor) -> Tensor:
        """Return class logits, ``[B, classes]``."""
        return self.head(self.convolutions(image_BHW.unsqueeze(1)))


class SizeInvariantCNN(nn.Module):
    """The same convolutions, the maximum over all positions, and two dense layers; takes images of any size.

    The answer depends on which features occur, not on where. A frame of zero pixels adds the features of black surroundings, of a
    black border and of a black corner. Once a picture has 8 black pixels on each side all of these occur, and any further even
    number of pixels, which the max-pooling does not notice, changes nothing at all.

    Args:
        channels: channels of the two convolutions.
        hidden: units of the hidden dense layer.
        num_classes: number of classes.

    The defaults have 28 426 parameters.
    """

    def __init__(self, channels: tuple[int, int] = (32, 64), hidden: int = 128, num_classes: int = 10) -> None:
        super().__init__()
        self.convolutions = _convolutions(channels)
        self.head = nn.Sequential(nn.Linear(channels[1], hidden), nn.ReLU(), nn.Linear(hidden, num_classes))

    def forward(self, image_BHW: Tensor) -> Tensor:
        """Return class logits, ``[B, classes]``."""
        return self.head(self.convolutions(image_BHW.unsqueeze(1)).amax(dim=(2, 3)))
