from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgba

from datamodules import MNISTPatchDataModule, mnist_patches
from datamodules.base import BatchKey
from datamodules.images import load_images
from datamodules.mnist_patches import PatchImages, shrink
from datamodules.roots import find_data

needs_mnist = pytest.mark.skipif(
    find_data("images/mnist.npz") is None and find_data("MNIST/raw") is None, reason="no MNIST in LEYDEN_DATA or the cache folder"
)


@pytest.fixture(autouse=True)
def numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of the files 200 + 80 random images of 28 x 28 pixels without dark ones, whose corner pixel is their number."""

    def load(variant: str, root: str | Path | None = None) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        if variant == "digits8":
            return load_images(variant, root)
        random = np.random.default_rng(1)
        splits = {}
        for split, size in (("train", 200), ("test", 80)):
            images = random.integers(1, 256, (size, 28, 28), dtype=np.uint8)
            images[:, 0, 0] = np.arange(size)
            splits[split] = images, random.integers(0, 10, size)
        return splits

    monkeypatch.setattr(mnist_patches, "load_images", load)


def ready(**options) -> MNISTPatchDataModule:
    data = MNISTPatchDataModule(**{"val_size": 50, "batch_size": 16, **options})
    data.setup("fit")
    return data


def numbers(images: PatchImages) -> list[int]:
    return images.images[:, 0, 0].tolist()


def whole(images: PatchImages) -> dict[str, torch.Tensor]:
    return images[BatchKey(0, 0, np.arange(len(images)), slice(None))]


@needs_mnist
def test_mnist(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mnist_patches, "load_images", load_images)
    data = MNISTPatchDataModule(size=14, val_size=5_000, train_size=20_000, test_size=10)
    data.prepare_data()
    data.setup("fit")
    assert (len(data.train_set), len(data.val_set)) == (20_000, 5_000)
    (batch,) = data._loader(data.test_set, 10)
    assert batch["label"].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert batch["image"].shape == (10, 14, 14)
    first = load_images("mnist")["test"][0][0].astype(float)
    assert batch["image"][0, 10, 6].item() == pytest.approx(first[20:22, 12:14].mean() / 255)


def test_shrinking_by_hand():
    image = np.array([[[255, 0, 10, 20], [255, 255, 30, 40], [0, 0, 1, 1], [0, 0, 1, 1]]], dtype=np.uint8)
    small = shrink(image, 2)
    assert small.dtype == np.float32
    assert small[0].ravel().tolist() == pytest.approx([0.75, 25 / 255, 0.0, 1 / 255])
    assert (shrink(image, 4) == image.astype(np.float32) / 255).all()
    assert shrink(image, 1).item() == pytest.approx(869 / 16 / 255)


def test_batches():
    data = ready()
    batches = list(data.train_dataloader())
    assert len(batches) == 150 // 16
    for batch in batches:
        assert set(batch) == {"image", "label"}
        assert (batch["image"].dtype, batch["label"].dtype) == (torch.float32, torch.int64)
        assert batch["image"].shape == (16, 28, 28)
        assert 0 <= batch["image"].min() < batch["image"].max() <= 1
    images, labels = mnist_patches.load_images("mnist")["test"]
    test = whole(data.test_set)
    assert (test["image"].numpy() == images.astype(np.float32) / 255).all()
    assert test["label"].tolist() == labels.tolist()


def test_splits_do_not_overlap():
    data = ready(train_size=100)
    train, val = numbers(data.train_set), numbers(data.val_set)
    assert (len(train), len(val)) == (100, 50)
    assert len({*train, *val}) == 150
    assert val != sorted(val), "the images are mixed before the cut"
    everything = ready(train_size=None)
    assert sorted(numbers(everything.train_set) + val) == list(range(200))
    assert numbers(everything.val_set) == val
    assert numbers(everything.train_set)[:100] == train
    assert numbers(ready(seed=3).val_set) == val
    assert numbers(ready(generator_seed=3).val_set) != val
    images, labels = mnist_patches.load_images("mnist")["train"]
    assert (data.val_set.labels == labels[val]).all()
    assert (data.val_set.images == images[val]).all()
    assert numbers(ready(test_size=7).test_set) == list(range(7))


def test_suites_have_their_names_and_order():
    data = MNISTPatchDataModule(pads=[4, 2], drops=[0.05, 0.3], noises=[0.1, 0.25])
    assert data.suite_names() == ["pad4", "pad2", "drop5", "drop30", "noise0.1", "noise0.25"]
    assert MNISTPatchDataModule(drops=[0.1], dropout_mode="remove_agent").suite_names() == ["drop10_removed"]
    assert MNISTPatchDataModule().suite_names() == []
    data = ready(pads=[4], noises=[0.1])
    assert list(data.test_suites) == data.suite_names() == data.model_arguments()["test_suites"]
    assert [next(iter(loader))["image"].shape[-1] for loader in data.test_dataloader()] == [28, 36, 28]
    assert all(whole(suite)["label"].equal(whole(data.test_set)["label"]) for suite in data.test_suites.values())


def test_padded_suite():
    data = ready(size=14, pads=[3])
    clean, padded = whole(data.test_set)["image"], whole(data.test_suites["pad3"])["image"]
    assert padded.shape == (80, 20, 20)
    assert padded[:, 3:17, 3:17].equal(clean)
    assert padded.sum().item() == pytest.approx(clean.sum().item())


@pytest.mark.parametrize(("size", "patch", "blocks", "dropped"), [(28, 3, 81, 8), (14, 3, 25, 2), (14, 2, 49, 5)])
def test_dropped_suite(size: int, patch: int, blocks: int, dropped: int):
    data = ready(size=size, patch=patch, drops=[0.1])
    removed = ready(size=size, patch=patch, drops=[0.1], dropout_mode="remove_agent")
    clean = whole(data.test_set)["image"]
    batch = whole(data.test_suites["drop10"])
    assert set(batch) == {"image", "label"}
    marked = whole(removed.test_suites["drop10_removed"])
    assert marked["image"].equal(batch["image"]), "both modes blank the same blocks"
    assert marked["dropped"].dtype == torch.bool
    assert marked["dropped"].shape == (80, blocks)
    assert (marked["dropped"].sum(dim=1) == dropped).all()
    starts = range(0, int(blocks**0.5) * patch, patch)
    gone = torch.zeros_like(clean, dtype=torch.bool)
    for block, (row, column) in enumerate((row, column) for row in starts for column in starts):
        gone[:, row : row + patch, column : column + patch] = marked["dropped"][:, block, None, None]
    assert batch["image"].equal(clean.masked_fill(gone, 0.0))


def test_noisy_suite():
    data = ready(noises=[0.1, 0.5])
    clean, weak, strong = (whole(data.test_set)["image"], *(whole(suite)["image"] for suite in data.test_suites.values()))
    inner = (clean > 0.5) & (clean < 0.51)
    assert (weak - clean)[inner].std().item() == pytest.approx(0.1, rel=0.15)
    assert strong.min() == 0.0
    assert strong.max() == 1.0
    correlation = np.corrcoef((weak - clean)[inner], (strong - clean)[inner])[0, 1]
    assert abs(correlation) < 5 / np.sqrt(inner.sum().item()), "each suite has noise of its own"


@pytest.mark.parametrize("options", [{"drops": [0.3], "dropout_mode": "remove_agent"}, {"noises": [0.2]}, {"pads": [2]}])
def test_corruption_is_the_same_for_every_batch_size_rank_and_seed(options: dict):
    data = ready(**options)
    (suite,) = data.test_suites.values()
    (expected,) = data._loader(suite, 80)
    for other in (ready(batch_size=7, seed=4, **options), ready(test_size=41, **options), ready(num_workers=1, **options)):
        (again,) = other.test_suites.values()
        batches = list(other._loader(again, 16))
        assert len(batches) > 1
        for name, values in expected.items():
            assert torch.cat([batch[name] for batch in batches]).equal(values[: len(again)])
    for rank in range(2):
        part = suite[BatchKey(0, 0, np.arange(80), slice(rank, None, 2))]
        assert all(part[name].equal(expected[name][rank::2]) for name in expected)
    if "pads" not in options:
        (other,) = ready(generator_seed=1, **options).test_suites.values()
        assert not whole(other)["image"].equal(expected["image"])


def test_digits():
    data = ready(variant="digits8", patch=2, drops=[0.25])
    assert [len(split) for split in (data.train_set, data.val_set, data.test_set)] == [1_247, 50, 500]
    batch = whole(data.test_set)
    assert batch["image"].shape == (500, 8, 8)
    assert (batch["image"].min(), batch["image"].max()) == (0.0, 1.0)
    assert (batch["image"] * 16 - (batch["image"] * 16).round()).abs().max() < 0.04  # sixteenths, stored as 255ths
    assert ready(variant="digits8", patch=2, drops=[0.25], dropout_mode="remove_agent").test_suites["drop25_removed"][
        BatchKey(0, 0, np.arange(3), slice(None))
    ]["dropped"].sum(dim=1).tolist() == [4, 4, 4]


def test_smoke_settings_fit():
    data = MNISTPatchDataModule(**MNISTPatchDataModule.smoke)
    data.setup("fit")
    assert [len(split) for split in (data.train_set, data.val_set, data.test_set)] == [32, 8, 8]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"variant": "cifar"}, "variant='cifar' is unknown, use mnist, fashion, digits8"),
        ({"dropout_mode": "none"}, "dropout_mode='none' is unknown, use zero_pixels or remove_agent"),
        ({"size": 10}, "size=10 does not divide the 28 pixels of mnist: use 1, 2, 4, 7, 14, 28"),
        ({"size": 0}, "size=0 does not divide"),
        ({"size": 14, "patch": 15}, "patch=15 does not fit images of 14 pixels: use 1 to 14"),
        ({"patch": 0}, "patch=0 does not fit"),
        ({"train_size": 0}, "train_size=0 must be at least 1"),
        ({"val_size": 0}, "val_size=0 must be at least 1"),
        ({"test_size": -1}, "test_size=-1 must be at least 1"),
        ({"pads": [2, 0]}, "pads has 0: a frame needs at least 1 pixel"),
        ({"drops": [10]}, "drops has 10: use fractions between 0 and 1"),
        ({"drops": [0.0]}, "drops has 0: use fractions"),
        ({"drops": [0.005]}, "drops has 0.005, which is 0 of 81 blocks"),
        ({"drops": [0.999]}, "drops has 0.999, which is 81 of 81 blocks"),
        ({"noises": [0.1, 0.0]}, "noises has 0: a standard deviation must be positive"),
        ({"noises": [float("nan")]}, "noises has nan"),
        ({"pads": [2, 2]}, r"pads=\[2, 2\], drops=\[\] and noises=\[\] give a suite twice"),
    ],
)
def test_bad_settings(options: dict, reason: str):
    with pytest.raises(ValueError, match=reason):
        MNISTPatchDataModule(**options)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"train_size": 151}, "mnist has 200 training images, too few for train_size=151 and val_size=50: use a smaller"),
        ({"val_size": 200}, "200 training images, too few for at least one training image and val_size=200"),
        ({"test_size": 81}, "mnist has 80 test images, too few for test_size=81: use at most those"),
    ],
)
def test_more_images_than_there_are(options: dict, reason: str):
    with pytest.raises(ValueError, match=reason):
        ready(**options)


def test_plot():
    data = ready(drops=[0.1], dropout_mode="remove_agent")
    (suite,) = data.test_suites.values()
    sample = {name: values[5] for name, values in whole(suite).items()}
    for prediction, color in ((sample["label"], "tab:green"), ((sample["label"] + 1) % 10, "tab:red")):
        (axes,) = data.plot({**sample, "prediction": prediction}).axes
        assert axes.get_title() == f"label {int(sample['label'])}, prediction {int(prediction)}"
        assert to_rgba(axes.title.get_color()) == to_rgba(color)
    assert (axes.images[0].get_array() == sample["image"].numpy()).all()
    crosses = axes.collections[-1].get_offsets()
    blocks = np.flatnonzero(sample["dropped"].numpy())
    assert crosses.tolist() == [[block % 9 * 3 + 1, block // 9 * 3 + 1] for block in blocks]
    (axes,) = data.plot({"image": sample["image"]}).axes
    assert axes.get_title() == ""
    horizontal, vertical = axes.collections
    assert len(horizontal.get_segments()) == len(vertical.get_segments()) == 10
