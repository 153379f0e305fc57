"""Windows of a text as sequences of D tokens."""

from typing import Any

import numpy as np

from datamodules.text.corpus import TextCorpusDataModule
from datamodules.tokens.token_sets import WithSeeds


class TextTokensDataModule(TextCorpusDataModule):
    """Windows of D tokens of a text: random ones for training, and fixed ones of text that is held out for validation and test.

    A batch is ``{"tokens": int64 [B, D], "seed": int64 [B]}``; the seed is what else is random about a window is made of. The last
    token of a fixed window is the first of the next.

    Args:
        length: tokens D of a window, at least 2.
        **options: those of :class:`~datamodules.text.corpus.TextCorpusDataModule` but ``seq_len``.

    Raises:
        ValueError: if ``length`` is below 2 or ``seq_len`` is given too.
    """

    smoke = {
        **{name: value for name, value in TextCorpusDataModule.smoke.items() if name != "seq_len"},
        "length": 16,
    }

    def __init__(self, length: int = 64, **options: Any) -> None:
        if "seq_len" in options:
            raise ValueError("TextTokensDataModule has a length, which counts all tokens of a window: leave seq_len out")
        if length < 2:
            raise ValueError(f"length={length} must be at least 2")
        super().__init__(seq_len=length - 1, **options)
        self.length = length

    def setup(self, stage: str) -> None:
        super().setup(stage)
        self.train_set = WithSeeds(self.train_set, self.seed)
        self.val_set = WithSeeds(self.val_set)
        self.test_set = None if self.test_set is None else WithSeeds(self.test_set)

    def model_arguments(self) -> dict[str, Any]:
        """Size of the vocabulary and length of a window."""
        return super().model_arguments() | {"length": self.length}

    def decode(self, ids: np.ndarray) -> str:
        """Return the text of ids."""
        return self.tokenizer.decode(ids)
