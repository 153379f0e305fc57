from pathlib import Path

import numpy as np
import pytest
import torch

from datamodules import DigitTokensDataModule, LabelledImageDataModule, TextTokensDataModule, TokenizedFolderDataModule
from datamodules.base import BatchKey
from datamodules.images import load_images


def key(indices: list[int], epoch: int = 0, rows: slice = slice(None)) -> BatchKey:
    return BatchKey(epoch, 0, np.array(indices), rows)


def test_digits_are_cut_into_levels():
    from sklearn.datasets import load_digits

    data = DigitTokensDataModule(val_size=50)
    data.setup("fit")
    original = load_digits().images[np.random.default_rng(0).permutation(1_797)[1_297:]]
    expected = np.minimum(np.floor(original / 4.25), 3).reshape(500, 64)
    assert np.array_equal(data.test_set.tokens_nD, expected)
    assert set(np.unique(expected)) == {0, 1, 2, 3}
    assert data.model_arguments() == {"vocab_size": 4, "length": 64}
    images, labels = data.labelled_images("test")
    assert images.shape == (500, 1, 8, 8)
    assert torch.equal(((images.flatten(1) + 1) * 1.5).round().long(), torch.from_numpy(expected).long())
    assert (images.min().item(), images.max().item()) == (-1, 1)
    other = LabelledImageDataModule(val_size=50)
    other.setup("fit")
    assert torch.equal(other.labelled_images("train")[1], data.labelled_images("train")[1])


def test_two_levels_are_black_and_white():
    data = DigitTokensDataModule("mnist", levels=2)
    tokens = data.tokens_of(np.array([[[0, 127], [128, 255]]], dtype=np.uint8))
    assert tokens.tolist() == [[0, 0, 1, 1]]
    assert data.model_arguments() == {"vocab_size": 2, "length": 784}


def test_training_seeds_are_new_in_each_epoch():
    data = DigitTokensDataModule(val_size=50, train_size=100)
    data.setup("fit")
    first, second = (data.train_set[key([3, 1, 2], epoch)] for epoch in range(2))
    assert torch.equal(first["tokens"], second["tokens"])
    assert not torch.isin(first["seed"], second["seed"]).any()
    assert data.val_set[key([7, 3])]["seed"].tolist() == [7, 3]
    images, _ = load_images("digits8")["train"]
    assert len(images) == 1_297


def test_text_has_windows_of_whole_length(tmp_path: Path):
    (tmp_path / "abc.txt").write_text("abcdefghij" * 100)
    data = TextTokensDataModule(length=12, source="abc.txt", root=str(tmp_path), batch_size=4, val=0.2, test=0.2)
    data.setup("fit")
    assert data.model_arguments() == {"vocab_size": 11, "length": 12}
    batch = data.train_set[key([0, 1, 2, 3])]
    assert batch["tokens"].shape == (4, 12)
    steps = batch["tokens"].diff(dim=1)
    assert ((steps == 1) | (steps == -9)).all()
    assert len(batch["seed"].unique()) == 4
    assert torch.equal(data.train_set[key([0, 1, 2, 3], rows=slice(1, None, 2))]["seed"], batch["seed"][1::2])
    fixed = data.test_set[key([1, 0])]
    assert data.decode(fixed["tokens"][1].numpy()) == "abcdefghijab"
    assert fixed["seed"].tolist() == [1, 0]
    with pytest.raises(ValueError, match="leave seq_len out"):
        TextTokensDataModule(length=8, seq_len=4)


def test_a_folder_of_codes_or_of_text(tmp_path: Path):
    codes = np.arange(60, dtype=np.uint16).reshape(10, 6) % 16
    np.save(tmp_path / "train_tokens.npy", codes)
    np.save(tmp_path / "val_tokens.npy", np.arange(20, dtype=np.int32) % 16)
    data = TokenizedFolderDataModule(str(tmp_path), 16, 6, batch_size=4, eval_size=2)
    data.setup("fit")
    assert data.train_set[key([9, 0])]["tokens"].tolist() == [codes[9].tolist(), codes[0].tolist()]
    assert data.val_set[key([0, 1])]["tokens"].flatten().tolist() == list(range(12))
    assert len(data.val_set) == 2
    assert data.test_set is None
    assert data.model_arguments() == {"vocab_size": 16, "length": 6}
    with pytest.raises(ValueError, match="no test set"):
        data.test_dataloader()
    small = TokenizedFolderDataModule(str(tmp_path), 4, 6)
    small.setup("fit")
    with pytest.raises(ValueError, match="vocab_size"):
        small.train_set[key([9])]
    with pytest.raises(ValueError, match="give its length"):
        TokenizedFolderDataModule(str(tmp_path), 16, 5).setup("fit")
    with pytest.raises(FileNotFoundError, match="train_tokens"):
        TokenizedFolderDataModule(str(tmp_path / "none"), 16, 5).setup("fit")
    tokens = np.linspace(0, 1, 12)
    np.save(tmp_path / "train_tokens.npy", tokens)
    with pytest.raises(ValueError, match="float64"):
        TokenizedFolderDataModule(str(tmp_path), 16, 6).setup("fit")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: DigitTokensDataModule("cats"), "cats"),
        (lambda: DigitTokensDataModule(levels=1), "levels=1"),
        (lambda: DigitTokensDataModule(levels=18), "17 greys"),
        (lambda: DigitTokensDataModule(val_size=0), "val_size=0"),
        (lambda: TextTokensDataModule(length=1), "length=1"),
        (lambda: TokenizedFolderDataModule("random", 0, 4), "vocab_size=0"),
    ],
)
def test_bad_input_is_refused(build, message: str):
    with pytest.raises(ValueError, match=message):
        build()
