import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from datamodules import TokenShardDataModule
from datamodules.base import BatchKey


def write(file: Path, tokens, dtype: str = "<u2", header: bytes = b"") -> Path:
    file.write_bytes(header + np.asarray(tokens, dtype=dtype).tobytes())
    return file


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three training shards of consecutive tokens, one of them too short for a window, and one to validate."""
    monkeypatch.delenv("LEYDEN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write(tmp_path / "train_000.bin", range(0, 103))
    write(tmp_path / "train_001.bin", range(200, 210))
    write(tmp_path / "train_002.bin", range(300, 351))
    write(tmp_path / "val_000.bin", range(500, 550))
    return tmp_path


def ready(folder: Path, **settings) -> TokenShardDataModule:
    patterns = {"train_files": str(folder / "train_*.bin"), "val_files": str(folder / "val_*.bin")}
    data = TokenShardDataModule(**(patterns | {"vocab_size": 600, "seq_len": 10, "batch_size": 4} | settings))
    data.setup("fit")
    return data


def everything(loader) -> torch.Tensor:
    return torch.cat([batch["tokens"] for batch in loader])


def test_windows_stay_inside_their_files(folder: Path):
    data = ready(folder)
    assert len(data.train_set) == 10 + 0 + 5
    tokens = data.train_set[BatchKey(0, 0, np.arange(15), slice(None))]["tokens"]
    assert tokens.dtype == torch.int64
    assert tokens[:, 0].tolist() == [*range(0, 100, 10), *range(300, 350, 10)]
    assert (tokens.diff(dim=1) == 1).all()
    assert tokens.shape == (15, 11)
    assert data.model_arguments() == {"vocab_size": 600}
    assert data.test_set is None


def test_an_epoch_shows_every_window_once_in_a_new_order(folder: Path):
    loader = ready(folder, batch_size=5).train_dataloader()
    orders = []
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        orders.append(everything(loader)[:, 0].tolist())
    assert sorted(orders[0]) == sorted(orders[1]) == [*range(0, 100, 10), *range(300, 350, 10)]
    assert orders[0] != orders[1]
    assert everything(ready(folder, batch_size=5, num_workers=2).train_dataloader())[:, 0].tolist() == orders[0]


def test_ranks_share_a_batch(folder: Path):
    data = ready(folder).train_set
    indices = np.array([14, 3, 9, 0])
    whole = data[BatchKey(0, 0, indices, slice(None))]["tokens"]
    for rank in range(2):
        assert torch.equal(data[BatchKey(0, 0, indices, slice(rank, None, 2))]["tokens"], whole[rank::2])


def test_a_run_goes_on_with_the_next_batch(folder: Path):
    loader = ready(folder, batch_size=3).train_dataloader()
    batches = list(loader)
    iterator = iter(loader)
    next(iterator), next(iterator)
    resumed = ready(folder, batch_size=3).train_dataloader()
    resumed.load_state_dict(loader.state_dict())
    rest = list(resumed)
    assert len(rest) == 3
    assert all(torch.equal(one["tokens"], other["tokens"]) for one, other in zip(rest, batches[2:], strict=True))


def test_documents_are_numbered_from_their_separators(folder: Path):
    write(folder / "train_000.bin", [5, 6, 0, 7, 8, 0, 0, 9])
    data = ready(folder, train_files=str(folder / "train_000.bin"), seq_len=7, document_sep=0, batch_size=1)
    (batch,) = data.train_dataloader()
    assert batch["documents"].tolist() == [[0, 0, 1, 1, 1, 2, 3, 3]]
    assert batch["documents"].dtype == torch.int64
    assert "documents" not in next(iter(ready(folder).val_dataloader()))


def test_wide_tokens_and_headers(folder: Path):
    for name in ("wide_0.bin", "held_out.bin"):
        write(folder / name, [70_000, 1, 2, 3], "<u4", header=b"\xff" * 1024)
    patterns = {"train_files": str(folder / "wide_*"), "val_files": str(folder / "held_*")}
    data = ready(folder, **patterns, vocab_size=70_001, dtype="uint32", header_bytes=1024, seq_len=3, batch_size=1)
    assert everything(data.train_dataloader()).tolist() == [[70_000, 1, 2, 3]]


def test_fewer_windows_are_spread_over_the_files(folder: Path):
    data = ready(folder, eval_windows=2, test_files=str(folder / "val_*.bin"))
    assert everything(data.val_dataloader())[:, 0].tolist() == [500, 520]
    assert everything(data.test_dataloader())[:, 0].tolist() == [500, 520]


def test_files_are_not_copied_into_loader_processes(folder: Path):
    data = ready(folder).train_set
    key = BatchKey(0, 0, np.arange(15), slice(None))
    before = data[key]["tokens"]
    copied = pickle.dumps(data)
    assert len(copied) < 2_000
    assert torch.equal(pickle.loads(copied)[key]["tokens"], before)


def test_relative_patterns_are_found_in_the_data_folders(folder: Path, monkeypatch: pytest.MonkeyPatch):
    data = ready(folder, train_files="train_*.bin", val_files="val_*.bin", root=str(folder))
    assert len(data.train_set) == 15
    monkeypatch.setenv("LEYDEN_DATA", str(folder))
    assert len(ready(folder, train_files="train_*.bin", val_files="val_*.bin").train_set) == 15


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vocab_size": 70_000}, "does not fit into dtype=uint16"),
        ({"dtype": "int32"}, "dtype='int32' is unknown"),
        ({"seq_len": 0}, "seq_len=0 must be positive"),
        ({"document_sep": 600}, "document_sep=600 must be a token below vocab_size=600"),
        ({"header_bytes": -1}, "header_bytes=-1"),
        ({"header_bytes": 3}, "are not 3 of a header and whole uint16 tokens"),
        ({"seq_len": 200}, "has no file of 201 tokens"),
        ({"val_files": "train_002.bin", "root": True}, "train_002.bin is for training and for val"),
    ],
)
def test_bad_settings_are_named(folder: Path, settings: dict, message: str):
    if settings.get("root"):
        settings = settings | {"root": str(folder)}
    with pytest.raises(ValueError, match=message):
        ready(folder, **settings)


def test_missing_files_and_foreign_tokens_are_named(folder: Path):
    with pytest.raises(FileNotFoundError, match="no file fits val_files='none_"):
        ready(folder, val_files="none_*.bin")
    with pytest.raises(ValueError, match=r"train_002.bin holds the token 350, beyond vocab_size=300"):
        list(ready(folder, vocab_size=300, batch_size=15).train_dataloader())


def test_random_tokens_need_no_files(folder: Path):
    words = {"train_files": "random", "val_files": "random", "test_files": "random"}
    data, again = (ready(folder, **words, seq_len=16, header_bytes=6) for _ in range(2))
    assert (len(data.train_set), len(data.val_set), len(data.test_set)) == (64, 64, 64)
    key = BatchKey(0, 0, np.arange(64), slice(None))
    train, val = data.train_set[key]["tokens"], data.val_set[key]["tokens"]
    assert len(train.unique()) > 400
    assert not torch.equal(train, val)
    assert torch.equal(train, again.train_set[key]["tokens"]), "all processes see the same"
    data.setup("test")
    assert torch.equal(data.train_set[key]["tokens"], train)
