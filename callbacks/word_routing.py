"""How many experts the letters that begin a word use, and how many the others."""

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

PLACES = ("word_start", "word_inside", "elsewhere")


class WordRouting(Callback):
    """Log the mean number of active experts by where a token stands in its word: ``test/active_<place>``.

    A token is ``word_start`` if its first letter is the first of a word, ``word_inside`` if it goes on with one, and ``elsewhere``
    if it begins with neither letter nor a space before a letter. The module's ``test_step`` returns ``counts`` ``[L, B, T]``, or
    nothing; the batch has ``tokens`` ``[B, T + 1]``, and the data module a ``tokenizer``. The first token of a window is left out.

    Raises:
        ValueError: if the data module has no tokenizer.
    """

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        tokenizer = getattr(trainer.datamodule, "tokenizer", None)  # type: ignore[attr-defined]
        if tokenizer is None:
            raise ValueError("WordRouting needs a data module with a tokenizer, such as TextCorpusDataModule: leave it out")
        texts = [tokenizer.decode([token]) for token in range(tokenizer.vocab_size)]
        self._spaced_V = torch.tensor([text[:1].isspace() and text.lstrip()[:1].isalpha() for text in texts])
        self._begins_V = torch.tensor([text[:1].isalpha() for text in texts])
        self._ends_V = torch.tensor([text[-1:].isalpha() for text in texts])

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._sums = torch.zeros(2, len(PLACES), dtype=torch.float64, device=pl_module.device)

    def on_test_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if not outputs:
            return
        places_BT = self.places(batch["tokens"][:, :-1]).flatten()
        counts_BT = outputs["counts"].double().mean(dim=0)[:, 1:].flatten()
        self._sums[0].index_add_(0, places_BT, counts_BT)
        self._sums[1].index_add_(0, places_BT, torch.ones_like(counts_BT))

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        experts, tokens = trainer.strategy.reduce(self._sums, reduce_op="sum")
        means = (experts / tokens).float()
        pl_module.log_dict({f"test/active_{place}": mean for place, mean in zip(PLACES, means, strict=True) if mean.isfinite()})

    def places(self, tokens_BT: Tensor) -> Tensor:
        """Return the position in ``PLACES`` of each token after the first, ``[B, T - 1]``."""
        before, now = tokens_BT[:, :-1].cpu(), tokens_BT[:, 1:].cpu()
        inside = self._begins_V[now] & self._ends_V[before]
        start = self._spaced_V[now] | self._begins_V[now] & ~inside
        return torch.where(start, 0, torch.where(inside, 1, 2)).to(tokens_BT.device)
