"""Tokens that were computed beforehand: codes of a quantised autoencoder, or a tokenized text."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from datamodules.base import LeydenDataModule
from datamodules.checks import check_positive
from datamodules.roots import find_data, require_data
from datamodules.tokens.token_sets import StoredTokens


class TokenizedFolderDataModule(LeydenDataModule):
    """Sequences of D tokens from arrays in a folder, read from disk a batch at a time.

    ==================== ====================================================================================
    file                 content
    ==================== ====================================================================================
    ``train_tokens.npy`` whole numbers from 0 to ``vocab_size - 1``: ``[n, D]``, such as the codes of images; or
                         ``[T]``, a text, which is cut into ``T // D`` windows side by side
    ``val_tokens.npy``   the same for the validation
    ``test_tokens.npy``  the same for the test; without it there is no test
    ==================== ====================================================================================

    A batch is ``{"tokens": int64 [B, D], "seed": int64 [B]}``; the seed is what else is random about a sequence is made of, in
    training a new one in each epoch.

    Args:
        folder: the folder, also looked for in the data folders; ``random``: a few random tokens, to try the machinery.
        vocab_size: number of tokens.
        length: D.
        batch_size: global batch size.
        eval_batch_size: global batch size of validation, test and prediction; default ``batch_size``.
        eval_size: sequences of validation and of test at most, the first ones; None: all.
        num_workers: loader processes per rank.
        seed: seed of the data order and of the training seeds.
        root: folder that is searched first for a relative ``folder``.

    Raises:
        ValueError: if a number is not positive.
    """

    smoke: ClassVar[dict[str, Any]] = {
        "folder": "random",
        **{"vocab_size": 16, "length": 8, "eval_size": 8},
        **{"batch_size": 8, "eval_batch_size": 8, "num_workers": 0},
    }

    def __init__(
        self,
        folder: str,
        vocab_size: int,
        length: int,
        batch_size: int = 256,
        eval_batch_size: int | None = None,
        eval_size: int | None = None,
        num_workers: int = 0,
        seed: int = 0,
        root: str | None = None,
    ) -> None:
        super().__init__(batch_size, eval_batch_size, num_workers, seed)
        check_positive(vocab_size=vocab_size, length=length, eval_size=eval_size)
        self.folder, self.root = folder, root
        self.vocab_size, self.length, self.eval_size = vocab_size, length, eval_size

    def setup(self, stage: str) -> None:
        """Map the arrays into memory.

        Raises:
            FileNotFoundError: if the file of the training or the validation is missing.
            ValueError: if an array has another shape or type.
        """
        self.train_set = self._split("train", self.seed)
        self.val_set = self._split("val", limit=self.eval_size)
        has_test = self.folder == "random" or find_data(self._name("test"), self.root)
        self.test_set = self._split("test", limit=self.eval_size) if has_test else None

    def model_arguments(self) -> dict[str, Any]:
        """Size of the vocabulary and length of a sequence."""
        return {"vocab_size": self.vocab_size, "length": self.length}

    def _split(self, split: str, seed: int | None = None, limit: int | None = None) -> StoredTokens:
        if self.folder == "random":
            tokens = np.random.default_rng([*split.encode()]).integers(self.vocab_size, size=(64, self.length))
        else:
            tokens = np.load(require_data(self._name(split), self.root), mmap_mode="r")
        if tokens.ndim == 1:
            whole = len(tokens) // self.length
            tokens = tokens[: whole * self.length].reshape(whole, self.length)
        if tokens.ndim != 2 or tokens.shape[1] != self.length or tokens.dtype.kind not in "iu" or not len(tokens):
            raise ValueError(
                f"the {split} set of {self.folder} has {tokens.dtype} of shape {tokens.shape}, expected whole numbers "
                f"[n, {self.length}] or [T]: give its length, or write it anew"
            )
        return StoredTokens(tokens[:limit], self.vocab_size, seed)

    def _name(self, split: str) -> str:
        return str(Path(self.folder) / f"{split}_tokens.npy")
