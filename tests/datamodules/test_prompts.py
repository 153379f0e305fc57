from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from datamodules.prompts import PromptDataModule


def batches(**options: object) -> list[dict]:
    data = PromptDataModule(**options)
    data.setup("test")
    return list(data.test_dataloader())


def test_every_prompt_meets_the_same_seeds():
    first, second, third = batches(prompts=["a", "b", "c"], samples=2, first_seed=5, batch_size=2)
    assert [first["prompt"], second["prompt"], third["prompt"]] == [["a", "a"], ["b", "b"], ["c", "c"]]
    assert first["seed"].tolist() == second["seed"].tolist() == [5, 6]
    assert torch.cat([first["index"], second["index"], third["index"]]).tolist() == [0, 1, 2, 3, 4, 5]


def test_classes_and_seeds_alone():
    (made,) = batches(labels=[3, 9], samples=1, batch_size=2)
    assert made["label"] == [3, 9]
    (made,) = batches(samples=3, batch_size=4)
    assert set(made) == {"index", "seed"}
    assert made["seed"].tolist() == [0, 1, 2]


def test_files(tmp_path: Path):
    (tmp_path / "prompts.txt").write_text("a cat\n\na dog\n")
    images = tmp_path / "images"
    images.mkdir()
    for name, grey in (("1.png", 0), ("2.png", 255)):
        Image.fromarray(np.full((8, 8), grey, dtype=np.uint8)).save(images / name)
    (made,) = batches(prompt_file=str(tmp_path / "prompts.txt"), images=str(images), image_size=4, samples=1, batch_size=2)
    assert made["prompt"] == ["a cat", "a dog"]
    assert made["image"].shape == (2, 3, 4, 4)
    assert made["image"][:, 0, 0, 0].tolist() == [0.0, 1.0]
    (images / "2.png").unlink()
    with pytest.raises(ValueError, match="1 images do not fit 2 prompts"):
        batches(prompts=["a", "b"], images=str(images))


def test_bad_input():
    with pytest.raises(ValueError, match="only one of"):
        PromptDataModule(prompts=["a"], labels=[1])
    with pytest.raises(ValueError, match="samples=0"):
        PromptDataModule(samples=0)
    with pytest.raises(FileNotFoundError, match="absent.txt"):
        batches(prompt_file="absent.txt")
    with pytest.raises(ValueError, match="nothing to train on"):
        PromptDataModule().train_dataloader()
