from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from torch import Tensor
from torch.utils.data import DataLoader

from callbacks.word_routing import WordRouting
from datamodules.text.tokenizers import CharacterTokenizer

TEXT = "ab, c'd e."


class Counted(LightningModule):
    """A model of two layers whose tokens use as many experts as their position, and twice as many."""

    def test_step(self, batch: dict[str, Tensor], batch_idx: int) -> dict[str, Tensor]:
        position = torch.arange(batch["tokens"].shape[1] - 1).expand(len(batch["tokens"]), -1)
        return {"counts": torch.stack([position, 2 * position])}


class Text(LightningDataModule):
    """One window of ``TEXT`` and a token that is only predicted."""

    def __init__(self) -> None:
        super().__init__()
        self.tokenizer = CharacterTokenizer(TEXT)

    def test_dataloader(self) -> DataLoader:
        tokens = torch.from_numpy(self.tokenizer.encode(TEXT + ".")).long()
        return DataLoader([{"tokens": tokens[None]}], batch_size=None)


def run_test(data: LightningDataModule) -> Any:
    trainer = Trainer(
        accelerator="cpu", logger=False, callbacks=[WordRouting()], enable_progress_bar=False, enable_model_summary=False
    )
    return trainer.test(Counted(), datamodule=data, verbose=False)[0]


def test_experts_by_place_in_the_word():
    found = run_test(Text())
    positions = {"word_start": [4, 6, 8], "word_inside": [1], "elsewhere": [2, 3, 5, 7, 9]}
    assert found == {f"test/active_{place}": pytest.approx(1.5 * sum(at) / len(at)) for place, at in positions.items()}


def test_byte_pairs_may_hold_the_space_before_a_word():
    routing = WordRouting()
    texts = [" un", "known", "!", "  9", " a1", "b"]
    tokenizer = SimpleNamespace(vocab_size=len(texts), decode=lambda ids: texts[ids[0]])
    routing.setup(SimpleNamespace(datamodule=SimpleNamespace(tokenizer=tokenizer)), LightningModule(), "test")  # type: ignore[arg-type]
    places = routing.places(torch.tensor([[2, 0, 1, 3, 4, 5]]))
    # " un" begins a word, "known" goes on with it, "  9" holds no letter, " a1" begins a word, ends in a digit, and "b" begins one
    assert places.tolist() == [[0, 1, 2, 0, 0]]


def test_data_without_a_tokenizer_are_refused():
    with pytest.raises(ValueError, match="tokenizer"):
        WordRouting().setup(SimpleNamespace(datamodule=None), LightningModule(), "test")  # type: ignore[arg-type]
