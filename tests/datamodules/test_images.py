import gzip
import sys
from pathlib import Path

import numpy as np
import pytest
from torchvision import datasets

from datamodules import images as image_files
from datamodules.images import load_images, prepare_images
from datamodules.roots import find_data

NAMES = {
    "train_images": "train-images-idx3-ubyte",
    "train_labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}
needs_mnist = pytest.mark.skipif(
    find_data("images/mnist.npz") is None and find_data("MNIST/raw") is None, reason="no MNIST in LEYDEN_DATA or the cache folder"
)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder apart from the user's own ones."""
    monkeypatch.delenv("LEYDEN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "root"


def arrays(seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {
        "train_images": random.integers(0, 256, (7, 28, 28), dtype=np.uint8),
        "train_labels": random.integers(0, 10, 7, dtype=np.uint8),
        "test_images": random.integers(0, 256, (3, 28, 28), dtype=np.uint8),
        "test_labels": random.integers(0, 10, 3, dtype=np.uint8),
    }


def write_archive(folder: Path, content: dict[str, np.ndarray], name: str = "mnist.npz") -> Path:
    (folder / "images").mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / "images" / name, **content)
    return folder / "images" / name


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes() + array.tobytes()


def write_raw(folder: Path, content: dict[str, np.ndarray], zipped: bool = False) -> Path:
    raw = folder / "raw"
    raw.mkdir(parents=True)
    for name, array in content.items():
        if zipped:
            (raw / f"{NAMES[name]}.gz").write_bytes(gzip.compress(idx(array)))
        else:
            (raw / NAMES[name]).write_bytes(idx(array))
    return raw


def check(splits: image_files.Splits, content: dict[str, np.ndarray]) -> None:
    for split in ("train", "test"):
        images, labels = splits[split]
        assert images.dtype == np.uint8
        assert labels.dtype == np.int64
        assert (images == content[f"{split}_images"]).all()
        assert labels.tolist() == content[f"{split}_labels"].tolist()


@needs_mnist
def test_mnist_is_the_official_one():
    splits = load_images("mnist")
    assert splits["test"][1][:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert splits["train"][1][:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert splits["train"][0].shape == (60_000, 28, 28)
    assert splits["test"][0].shape == (10_000, 28, 28)
    assert splits["train"][0].mean() / 255 == pytest.approx(0.1307, abs=5e-5)  # the mean that torchvision's recipes subtract


@pytest.mark.parametrize(("variant", "name"), [("mnist", "mnist.npz"), ("fashion", "fashion_mnist.npz")])
def test_archive(root: Path, variant: str, name: str):
    write_archive(root, arrays(), name)
    prepare_images(variant, root)
    check(load_images(variant, root), arrays())


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(("variant", "name"), [("mnist", "MNIST"), ("fashion", "FashionMNIST")])
def test_torchvision_folder(root: Path, variant: str, name: str, zipped: bool):
    write_raw(root / name, arrays(), zipped)
    prepare_images(variant, root)
    check(load_images(variant, root), arrays())


def test_archive_comes_before_torchvision_folder_and_root_first(root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("LEYDEN_DATA", str(tmp_path / "shared"))
    write_raw(root / "MNIST", arrays(1))
    check(load_images("mnist", root), arrays(1))
    write_archive(tmp_path / "shared", arrays(2))
    check(load_images("mnist", root), arrays(2))
    write_archive(root, arrays(3))
    check(load_images("mnist", root), arrays(3))


def test_download_is_kept_as_an_archive(root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(datasets.MNIST, "download", lambda self: write_raw(Path(self.root) / "MNIST", arrays()))
    with pytest.raises(FileNotFoundError, match="is in none of"):
        load_images("mnist", root)
    prepare_images("mnist", root)
    assert [path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()] == ["images/mnist.npz"]
    check(load_images("mnist", root), arrays())


@pytest.mark.parametrize(("variant", "name"), [("mnist", "MNIST"), ("fashion", "FashionMNIST")])
def test_one_error_names_the_remedies(root: Path, monkeypatch: pytest.MonkeyPatch, variant: str, name: str):
    def offline(self) -> None:
        raise RuntimeError("Error downloading train-images-idx3-ubyte.gz:\nTried https://one, got:\nno route\n")

    monkeypatch.setattr(getattr(datasets, name), "download", offline)
    with pytest.raises(FileNotFoundError) as caught:
        prepare_images(variant, root)
    message = str(caught.value)
    for part in (
        f"images/{'mnist' if variant == 'mnist' else 'fashion_mnist'}.npz",
        str(root),
        "torchvision: Error downloading train-images-idx3-ubyte.gz)",
        "`root`",
        "LEYDEN_DATA",
        f"python -m datamodules.fetch --what {variant}`",
        "torchvision on a machine with network access",
        f"{name}/raw",
    ):
        assert part in message
    assert "\n" not in message
    assert not [path for path in root.rglob("*") if path.is_file()]


def without(name: str) -> dict[str, np.ndarray]:
    return {key: array for key, array in arrays().items() if key != name}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (without("test_labels"), "test_labels is not a file in the archive"),
        ({**arrays(), "test_labels": arrays()["train_labels"]}, r"labels of shape \(7,\) for 3 images"),
        ({**arrays(), "train_labels": np.full(7, 10, dtype=np.uint8)}, "labels from 10 to 10, expected 0 to 9"),
        ({**arrays(), "train_labels": np.zeros(7)}, "float64 labels"),
        ({**arrays(), "train_images": np.zeros((7, 784), dtype=np.uint8)}, r"shape \(7, 784\), expected uint8 \[n, 28, 28\]"),
        ({**arrays(), "train_images": np.zeros((7, 28, 28))}, "float64 images"),
        ({**arrays(), "test_images": np.zeros((0, 28, 28), np.uint8), "test_labels": np.zeros(0, np.uint8)}, "for 0 images"),
    ],
)
def test_wrong_archive(root: Path, content: dict[str, np.ndarray], reason: str):
    file = write_archive(root, content)
    with pytest.raises(ValueError, match=reason) as caught:
        load_images("mnist", root)
    assert str(file) in str(caught.value)
    assert "replace or remove it" in str(caught.value)


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "text", "npy"])
def test_damaged_archive(root: Path, damage: str):
    file = write_archive(root, arrays())
    content = file.read_bytes()
    middle = len(content) // 3
    if damage == "npy":
        with file.open("wb") as stream:
            np.save(stream, np.zeros(3))
    else:
        damaged = {"cut": content[:middle], "changed": content[:middle] + b"!" * 99 + content[middle + 99 :], "empty": b""}
        file.write_bytes(damaged.get(damage, b"not an archive"))
    with pytest.raises(ValueError, match="cannot be read") as caught:
        load_images("mnist", root)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("damage", ["missing", "cut", "other"])
def test_damaged_torchvision_folder(root: Path, damage: str, zipped: bool):
    raw = write_raw(root / "MNIST", arrays(), zipped)
    file = raw / (NAMES["test_images"] + ".gz" * zipped)
    content = file.read_bytes()
    file.unlink()
    if damage != "missing":
        file.write_bytes(content[:-50] if damage == "cut" else b"another format")
    with pytest.raises(ValueError, match="is missing" if damage == "missing" else "cannot be read") as caught:
        load_images("mnist", root)
    assert str(raw / NAMES["test_images"]) in str(caught.value)


def test_digits(root: Path):
    from sklearn.datasets import load_digits

    splits = load_images("digits8", root)
    assert [splits[split][0].shape for split in ("train", "test")] == [(1_297, 8, 8), (500, 8, 8)]
    images = np.concatenate([splits["train"][0], splits["test"][0]])
    labels = np.concatenate([splits["train"][1], splits["test"][1]])
    assert images.dtype == np.uint8
    assert labels.dtype == np.int64
    levels = np.rint(images / 255 * 16)
    assert np.abs(images / 255 - levels / 16).max() <= 0.5 / 255
    digits = load_digits()
    own = sorted((*image.ravel(), label) for image, label in zip(levels, labels, strict=True))
    assert own == sorted((*image.ravel(), label) for image, label in zip(digits.images, digits.target, strict=True))
    assert not (labels == digits.target).all()
    assert np.bincount(splits["test"][1]).min() > 30, "the order was mixed before the cut"
    assert (load_images("digits8")["test"][0] == splits["test"][0]).all()


def test_digits_without_scikit_learn(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=r"needs scikit-learn: pip install 'leyden\[data\]'"):
        prepare_images("digits8")


def test_unknown_variant():
    with pytest.raises(ValueError, match="variant='cifar' is unknown, use mnist, fashion, digits8"):
        load_images("cifar")
