import numpy as np
import pytest
import torch

from datamodules import LabelledImageDataModule, MNISTPatchDataModule
from datamodules.base import BatchKey
from datamodules.images import load_images
from datamodules.labelled_images import scaled
from datamodules.roots import find_data


def ready(**options) -> LabelledImageDataModule:
    data = LabelledImageDataModule(**{"val_size": 50, "batch_size": 16, **options})
    data.setup("fit")
    return data


def key(indices: list[int], epoch: int = 0, rows: slice = slice(None)) -> BatchKey:
    return BatchKey(epoch, 0, np.array(indices), rows)


def test_values_and_sizes():
    data = ready()
    (images, labels), (original, right) = data.labelled_images("test"), load_images("digits8")["test"]
    assert images.shape == (500, 1, 8, 8)
    assert (images.min().item(), images.max().item()) == (-1, 1)
    assert np.array_equal(np.rint((images[:, 0].numpy() + 1) * 127.5), original)
    assert np.array_equal(labels.numpy(), right)
    batch = data.test_set[key([4, 2])]
    assert batch["image"].dtype == torch.float32
    assert torch.equal(batch["image"], images[[4, 2]])
    assert torch.equal(batch["label"], labels[[4, 2]])
    assert [len(data.labelled_images(split)[0]) for split in ("train", "val")] == [1_247, 50]
    assert data.model_arguments() == {"image_size": 8, "channels": 1, "num_classes": 10}


def test_black_pixels_around():
    image = np.full((1, 3, 3), 255, dtype=np.uint8)
    padded = scaled(image, 6)[0, 0]
    assert padded[1:4, 1:4].min() == 1
    assert padded.sum() == 9 - 27
    assert np.array_equal(scaled(image, 3)[0, 0], np.ones((3, 3), dtype=np.float32))
    data = ready(pad_to=12)
    assert data.model_arguments()["image_size"] == 12
    assert data.train_set[key([0])]["image"].shape == (1, 1, 12, 12)


def test_splits_are_those_of_the_patches():
    data, patches = ready(train_size=100), MNISTPatchDataModule(variant="digits8", train_size=100, val_size=50)
    patches.setup("fit")
    for split in ("train", "val", "test"):
        own, other = getattr(data, f"{split}_set"), getattr(patches, f"{split}_set")
        assert np.array_equal(own.images, other.images)
        assert np.array_equal(own.labels, other.labels)


def test_seeds():
    data = ready()
    whole = data.train_set[key([0, 1, 2, 3, 4])]["seed"]
    assert whole.dtype == torch.int64
    assert len(set(whole.tolist())) == 5
    assert torch.equal(data.train_set[key([0, 1, 2, 3, 4], rows=slice(1, None, 2))]["seed"], whole[1::2])
    assert not torch.isin(data.train_set[key([0, 1, 2, 3, 4], epoch=1)]["seed"], whole).any()
    assert not torch.equal(ready(seed=1).train_set[key([0, 1, 2, 3, 4])]["seed"], whole)
    for images in (data.val_set, data.test_set):
        assert images[key([7, 3], epoch=4)]["seed"].tolist() == [7, 3]


@pytest.mark.skipif(find_data("images/mnist.npz") is None, reason="no MNIST in LEYDEN_DATA or the cache folder")
def test_mnist():
    data = LabelledImageDataModule("mnist", pad_to=32, val_size=5_000, eval_batch_size=10)
    data.prepare_data()
    data.setup("test")
    batch = next(iter(data.test_dataloader()))
    assert batch["label"].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert batch["image"].shape == (10, 1, 32, 32)
    assert batch["image"][:, :, :2].unique().tolist() == [-1]


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="variant='cifar' is unknown"):
        LabelledImageDataModule("cifar")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="pad_to=7 is less than the 8 pixels"):
        LabelledImageDataModule(pad_to=7)
    with pytest.raises(ValueError, match="val_size=0"):
        LabelledImageDataModule(val_size=0)
    with pytest.raises(ValueError, match="digits8 has 1297 training images, too few for train_size=1290"):
        ready(train_size=1_290)
