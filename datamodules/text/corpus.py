"""A text as windows of tokens for a language model."""

from functools import cached_property
from typing import Any, Literal

from datamodules.base import LeydenDataModule
from datamodules.checks import check_positive
from datamodules.text.corpora import FILES, load_corpus, split_corpus
from datamodules.text.tokenizers import CharacterTokenizer, TextTokenizer, byte_pair_tokenizer
from datamodules.text.windows import FixedWindows, RandomWindows, TokenArray, check_length, whole_windows

DEFAULT_SHARE = 0.05
DEFAULT_PAIRS = 1024


class TextCorpusDataModule(LeydenDataModule):
    """Windows of a text: random ones for training, and for validation and test fixed ones of text that is held out.

    A batch is ``{"tokens": int64 [B, L + 1]}``: inputs are ``tokens[:, :-1]``, targets ``tokens[:, 1:]``. No held-out token is a
    target twice. The tokenizer knows the training text alone.

    Args:
        source: ``topics`` (Python's help topics, always there), ``shakespeare``, ``plays``, ``austen``, or the path of a UTF-8
            file, whose documents a form feed separates.
        tokenizer: ``char``, one token a character, or ``bpe``, byte pairs learned from the training text (``leyden[llm]``).
        vocab_size: tokens of the vocabulary: with ``bpe`` 1024 by default, with ``char`` all characters and one for unknown ones.
        seq_len: inputs of a window, L.
        batch_size: windows of a global batch.
        eval_batch_size: windows of a global batch of validation and test; default ``batch_size``.
        val: title of the document held out for validation, or the share of the text that is cut from the end for it, before the
            test's; default ``persuasion`` of ``austen``, else 0.05.
        test: the same for the test, 0 for none; default ``northangerabbey`` of ``austen``, else 0.05.
        windows_per_epoch: training windows that count as an epoch; by default as many as the text has side by side.
        eval_windows: windows of validation and of test at most, spread evenly; None: all.
        root: folder that is searched first and keeps the byte pairs.
        num_workers: loader processes per rank.
        seed: seed of the training windows.

    Raises:
        ValueError: if a number is not positive.
    """

    smoke = {
        "source": "topics",
        "val": None,
        "test": None,
        "seq_len": 16,
        "batch_size": 8,
        "eval_batch_size": 8,
        "windows_per_epoch": 64,
        "eval_windows": 16,
        "num_workers": 0,
    }

    def __init__(
        self,
        source: str = "topics",
        tokenizer: Literal["char", "bpe"] = "char",
        vocab_size: int | None = None,
        seq_len: int = 64,
        batch_size: int = 16,
        eval_batch_size: int | None = None,
        val: float | str | None = None,
        test: float | str | None = None,
        windows_per_epoch: int | None = None,
        eval_windows: int | None = None,
        root: str | None = None,
        num_workers: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__(batch_size, eval_batch_size, num_workers, seed)
        if tokenizer not in ("char", "bpe"):
            raise ValueError(f"tokenizer={tokenizer!r} is unknown, use char or bpe")
        check_positive(seq_len=seq_len, windows_per_epoch=windows_per_epoch, eval_windows=eval_windows)
        known = FILES.get(source)
        self.source, self.root, self.tokenizer_name, self.vocab_size = source, root, tokenizer, vocab_size
        self.val: float | str = (known.val if known else DEFAULT_SHARE) if val is None else val
        self.test: float | str = (known.test if known else DEFAULT_SHARE) if test is None else test
        self.seq_len, self.windows_per_epoch, self.eval_windows = seq_len, windows_per_epoch, eval_windows

    @cached_property
    def splits(self) -> dict[str, str]:
        """The texts ``train``, ``val`` and ``test``, read when first asked for."""
        return split_corpus(load_corpus(self.source, self.root), self.val, self.test)

    @cached_property
    def tokenizer(self) -> TextTokenizer:
        """What encodes and decodes the text."""
        if self.tokenizer_name == "bpe":
            return byte_pair_tokenizer(self.splits["train"], self.vocab_size or DEFAULT_PAIRS, self.root)
        return CharacterTokenizer(self.splits["train"], self.vocab_size)

    @cached_property
    def tokens(self) -> dict[str, TokenArray]:
        """The encoded texts; a test without text is left out."""
        return {name: TokenArray(self.tokenizer.encode(text)) for name, text in self.splits.items() if text}

    def model_arguments(self) -> dict[str, Any]:
        """Size of the vocabulary."""
        pairs = self.tokenizer_name == "bpe"
        return super().model_arguments() | {"vocab_size": self.vocab_size or DEFAULT_PAIRS if pairs else self.tokenizer.vocab_size}

    def prepare_data(self) -> None:
        """Learn the byte pairs unless they are kept already."""
        _ = self.tokenizer

    def setup(self, stage: str) -> None:
        """Encode the text and cut it into windows."""
        for name, sequence in self.tokens.items():
            check_length(sequence, self.seq_len, f"the {name} split of {self.source}")
        train = self.tokens["train"]
        if self.trainer and self.trainer.overfit_batches:  # type: ignore[attr-defined]
            self.train_set = FixedWindows(train, self.seq_len, self.windows_per_epoch)
        else:
            per_epoch = self.windows_per_epoch or whole_windows(train, self.seq_len)
            self.train_set = RandomWindows(train, self.seq_len, per_epoch, self.seed)
        self.val_set = FixedWindows(self.tokens["val"], self.seq_len, self.eval_windows)
        self.test_set = FixedWindows(self.tokens["test"], self.seq_len, self.eval_windows) if "test" in self.tokens else None
