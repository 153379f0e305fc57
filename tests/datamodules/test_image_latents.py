from pathlib import Path

import numpy as np
import pytest
import torch

from datamodules import ImageLatentDataModule
from datamodules.base import BatchKey

RANDOM = np.random.default_rng(0)
LATENTS = RANDOM.standard_normal((3, 20, 2, 4, 4)).astype(np.float16)
LABELS = RANDOM.integers(5, size=(3, 20)).astype(np.uint16)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for split, latents, labels in zip(("train", "val", "test"), LATENTS, LABELS, strict=True):
        np.save(tmp_path / f"{split}_latents.npy", latents)
        np.save(tmp_path / f"{split}_labels.npy", labels)
    return tmp_path


def ready(folder: Path | str, **options) -> ImageLatentDataModule:
    settings = {"channels": 2, "image_size": 4, "num_classes": 5, "scale": 0.5, "shift": 1.0, "batch_size": 6}
    data = ImageLatentDataModule(str(folder), **{**settings, **options})
    data.setup("fit")
    return data


def test_what_a_batch_is(folder: Path):
    data = ready(folder, eval_images=12)
    batch = data.train_set[BatchKey(0, 0, np.array([7, 3]), slice(None))]
    assert torch.allclose(batch["image"], torch.from_numpy(0.5 * (LATENTS[0, [7, 3]].astype(np.float32) - 1)))
    assert batch["image"].dtype == torch.float32
    assert batch["label"].tolist() == LABELS[0, [7, 3]].tolist()
    assert batch["label"].dtype == torch.int64
    assert isinstance(data.train_set.images, np.memmap)
    seen = torch.cat([batch["seed"] for batch in data.test_dataloader()])
    assert seen.tolist() == list(range(12))
    assert data.model_arguments() == {"image_size": 4, "channels": 2, "num_classes": 5}


def test_a_relative_folder_lies_in_the_root(folder: Path):
    assert len(ready(folder.name, root=str(folder.parent)).val_set) == 20


def test_random_arrays_and_no_test(folder: Path):
    assert len(ready("random").test_set) == 64
    (folder / "test_latents.npy").unlink()
    data = ready(folder)
    assert data.test_set is None
    with pytest.raises(ValueError, match="no test set"):
        data.test_dataloader()


def test_bad_input_is_refused(folder: Path):
    with pytest.raises(ValueError, match=r"\(20, 2, 4, 4\).*expected \[n, 3, 4, 4\]"):
        ready(folder, channels=3)
    with pytest.raises(ValueError, match="give num_classes"):
        ready(folder, num_classes=4)
    with pytest.raises(ValueError, match=r"scale=0\.0 must be positive"):
        ready(folder, scale=0.0)
    (folder / "val_labels.npy").unlink()
    with pytest.raises(FileNotFoundError, match=r"val_labels\.npy"):
        ready(folder)
