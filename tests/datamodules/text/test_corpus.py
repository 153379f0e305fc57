from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from datamodules import TextCorpusDataModule
from datamodules.base import BatchKey
from datamodules.text.windows import FixedWindows, RandomWindows, TokenArray


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A text whose characters are all different, so that a window says where it comes from."""
    monkeypatch.delenv("LEYDEN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    text = "".join(map(chr, range(1000, 2000)))
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    return tmp_path / "text.txt"


def ready(file: Path, **settings) -> TextCorpusDataModule:
    data = TextCorpusDataModule(str(file), seq_len=9, **({"batch_size": 8} | settings))
    data.prepare_data()
    data.setup("fit")
    return data


def everything(loader) -> torch.Tensor:
    return torch.cat([batch["tokens"] for batch in loader])


def test_training_windows_are_pieces_of_the_training_text(file: Path):
    data = ready(file, val=0.1, test=0.1, batch_size=16, windows_per_epoch=800)
    tokens = everything(data.train_dataloader())
    assert tokens.shape == (800, 10)
    assert tokens.dtype == torch.int64
    assert (tokens.diff(dim=1) == 1).all()  # neighbours in the text are neighbours in the vocabulary
    assert tokens.min() == 1  # the first and the last character occur, and none that is held out
    assert tokens.max() == 800
    starts = tokens[:, 0].double()
    assert starts.mean().item() == pytest.approx(396, abs=25)  # uniform on 1 ... 791: 228 of deviation, over 28
    assert data.tokenizer.decode(tokens[0].numpy()) in data.splits["train"]
    assert data.model_arguments() == {"vocab_size": 801}


def test_each_held_out_token_is_a_target_once(file: Path):
    text = file.read_text(encoding="utf-8")
    file.write_text(text[:800] + text[100:200] + text[300:400], encoding="utf-8")
    data = ready(file, val=0.1, test=0.1, eval_batch_size=4)
    for loader, held_out in ((data.val_dataloader(), text[100:200]), (data.test_dataloader(), text[300:400])):
        for tokens in (everything(loader), everything(loader)):
            assert tokens.shape == (11, 10)
            assert data.tokenizer.decode(tokens[:, 1:].flatten().numpy()) == held_out[1:]
            assert (tokens[1:, 0] == tokens[:-1, -1]).all()


def test_an_epoch_has_the_tokens_of_the_text(file: Path):
    data = ready(file, val=0.1, test=0)
    assert len(data.train_set) == 899 // 9
    assert data.test_set is None
    loader = data.train_dataloader()
    first, again = everything(loader), everything(loader)
    loader.sampler.set_epoch(1)
    assert torch.equal(first, again)
    assert not torch.equal(first, everything(loader))
    assert not torch.equal(first, everything(ready(file, val=0.1, test=0, seed=1).train_dataloader()))


def test_all_ranks_together_see_the_batch_of_one():
    data = RandomWindows(TokenArray(np.arange(500)), 7, per_epoch=64, seed=3)
    indices = np.arange(8)
    whole = data[BatchKey(2, 5, indices, slice(None))]["tokens"]
    shared = torch.empty_like(whole)
    for rank in range(4):
        shared[rank::4] = data[BatchKey(2, 5, indices, slice(rank, None, 4))]["tokens"]
    assert torch.equal(whole, shared)
    assert len(set(whole[:, 0].tolist())) > 4


def test_a_run_goes_on_with_the_next_batch(file: Path):
    loader = ready(file).train_dataloader()
    loader.sampler.set_epoch(3)
    batches = list(loader)
    iterator = iter(loader)
    for _ in range(4):
        next(iterator)
    state = loader.state_dict()
    resumed = ready(file).train_dataloader()
    resumed.load_state_dict(state)
    rest = list(resumed)
    assert len(rest) == len(batches) - 4 > 1
    assert all(torch.equal(one["tokens"], other["tokens"]) for one, other in zip(rest, batches[4:], strict=True))


def test_fewer_windows_are_spread_over_the_text():
    tokens = TokenArray(np.arange(102))
    assert FixedWindows(tokens, 10).starts.tolist() == list(range(0, 100, 10))
    assert FixedWindows(tokens, 10, limit=4).starts.tolist() == [0, 20, 50, 70]
    assert FixedWindows(tokens, 10, limit=99).starts.tolist() == list(range(0, 100, 10))


def test_overfitting_sees_the_same_windows_each_epoch(file: Path):
    data = TextCorpusDataModule(str(file), seq_len=9, batch_size=8)
    data.trainer = SimpleNamespace(
        overfit_batches=2, global_rank=0, world_size=1, strategy=SimpleNamespace(root_device=torch.device("cpu"))
    )
    data.setup("fit")
    loader = data.train_dataloader()
    first = everything(loader)
    loader.sampler.set_epoch(1)
    assert torch.equal(first, everything(loader))


def test_byte_pairs(tmp_path: Path, file: Path):
    pytest.importorskip("tokenizers")
    file.write_text("one two three two one and two\n" * 100, encoding="utf-8")
    data = TextCorpusDataModule(str(file), tokenizer="bpe", vocab_size=270, seq_len=9, batch_size=8, root=str(tmp_path))
    assert data.model_arguments() == {"vocab_size": 270}
    assert not list(tmp_path.rglob("bpe_*"))  # the size is known before anything is learned
    data.prepare_data()
    data.setup("fit")
    assert len(list(tmp_path.glob("text/bpe_270_*.json"))) == 1
    tokens = everything(data.val_dataloader())
    assert data.tokenizer.decode(tokens[0].numpy()) in data.splits["val"]
    assert TextCorpusDataModule(str(file), tokenizer="bpe").model_arguments() == {"vocab_size": 1024}


def test_smoke_settings_need_no_file(file: Path):
    data = TextCorpusDataModule(**(TextCorpusDataModule.smoke | {"tokenizer": "char"}))
    data.prepare_data()
    data.setup("fit")
    assert everything(data.train_dataloader()).shape == (64, 17)
    assert everything(data.val_dataloader()).shape == (16, 17)
    assert everything(data.test_dataloader()).shape == (16, 17)


def test_defaults_of_a_source():
    assert (TextCorpusDataModule("austen").val, TextCorpusDataModule("austen").test) == ("persuasion", "northangerabbey")
    assert (TextCorpusDataModule("austen", val="emma", test=0.1).val, TextCorpusDataModule("topics").val) == ("emma", 0.05)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seq_len": 0}, "seq_len=0 must be positive"),
        ({"windows_per_epoch": 0}, "windows_per_epoch=0 must be positive"),
        ({"eval_windows": -1}, "eval_windows=-1 must be positive"),
        ({"tokenizer": "words"}, "tokenizer='words' is unknown, use char or bpe"),
        ({"seq_len": 50}, "val split of .* has 50 tokens, too few for one window of seq_len=50"),
    ],
)
def test_bad_settings_are_named(file: Path, settings: dict, message: str):
    with pytest.raises(ValueError, match=message):
        TextCorpusDataModule(str(file), **settings).setup("fit")
