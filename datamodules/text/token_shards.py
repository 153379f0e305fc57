"""Text that was tokenized beforehand, in memory-mapped files."""

from glob import glob
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Literal

import numpy as np

from datamodules.base import LeydenDataModule
from datamodules.checks import check_positive
from datamodules.roots import data_folders
from datamodules.text.shards import ShardWindows


class TokenShardDataModule(LeydenDataModule):
    """Windows of ``.bin`` files that hold token after token and nothing else, such as tokenized FineWeb or DCLM.

    An epoch shows every window once, in a new order. A batch is ``{"tokens": int64 [B, L + 1]}``: inputs are ``tokens[:, :-1]``,
    targets ``tokens[:, 1:]``. With ``document_sep`` it also has ``documents``, int64 ``[B, L + 1]``, which number the documents of
    a window from 0, a separator being the first token of its document.

    Args:
        train_files: pattern of the training files, such as ``/data/fineweb/train_*.bin``, also looked for in the data folders;
            ``random``, here or below: a few random tokens, to try the machinery.
        val_files: pattern of the validation files.
        vocab_size: number of tokens of the tokenizer that wrote the files.
        test_files: pattern of the test files; None: no test.
        dtype: type of a token in the files, little-endian.
        seq_len: inputs of a window, L.
        document_sep: id of the token between documents.
        header_bytes: bytes to skip at the beginning of each file (1024 in those of llm.c).
        batch_size: windows of a global batch.
        eval_batch_size: windows of a global batch of validation and test; default ``batch_size``.
        eval_windows: windows of validation and of test at most, spread evenly; None: all.
        root: folder that is searched first for relative patterns.
        num_workers: loader processes per rank.
        seed: seed of the order.

    Raises:
        ValueError: if a number is out of range, or ids up to ``vocab_size`` do not fit into ``dtype``.
    """

    smoke: ClassVar[dict[str, Any]] = {
        **dict.fromkeys(("train_files", "val_files", "test_files"), "random"),
        **{"vocab_size": 64, "seq_len": 16, "document_sep": None, "header_bytes": 0},
        **{"batch_size": 4, "eval_batch_size": 4, "eval_windows": 8, "num_workers": 0},
    }

    def __init__(
        self,
        train_files: str,
        val_files: str,
        vocab_size: int,
        test_files: str | None = None,
        dtype: Literal["uint16", "uint32"] = "uint16",
        seq_len: int = 2048,
        document_sep: int | None = None,
        header_bytes: int = 0,
        batch_size: int = 16,
        eval_batch_size: int | None = None,
        eval_windows: int | None = None,
        root: str | None = None,
        num_workers: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__(batch_size, eval_batch_size, num_workers, seed)
        if dtype not in ("uint16", "uint32"):
            raise ValueError(f"dtype={dtype!r} is unknown, use uint16 or uint32")
        if dtype == "uint16" and vocab_size > 2**16:
            raise ValueError(f"vocab_size={vocab_size} does not fit into dtype=uint16: files of such a tokenizer have uint32")
        check_positive(vocab_size=vocab_size, seq_len=seq_len, eval_windows=eval_windows)
        if header_bytes < 0:
            raise ValueError(f"header_bytes={header_bytes} must not be negative")
        if document_sep is not None and not 0 <= document_sep < vocab_size:
            raise ValueError(f"document_sep={document_sep} must be a token below vocab_size={vocab_size}")
        self.patterns = {"train": train_files, "val": val_files} | ({"test": test_files} if test_files else {})
        self.root, self.vocab_size, self.dtype, self.seq_len = root, vocab_size, dtype, seq_len
        self.document_sep, self.header_bytes, self.eval_windows = document_sep, header_bytes, eval_windows
        self._folder: TemporaryDirectory[str] | None = None

    def model_arguments(self) -> dict[str, Any]:
        """Size of the vocabulary."""
        return super().model_arguments() | {"vocab_size": self.vocab_size}

    def setup(self, stage: str) -> None:
        """Find the files and cut them into windows.

        Raises:
            FileNotFoundError: if no file fits a pattern.
            ValueError: if a held-out file is a training file too.
        """
        files = {name: self._found(name, pattern) for name, pattern in self.patterns.items()}
        for name in files.keys() - {"train"}:
            if shared := set(files["train"]) & set(files[name]):
                raise ValueError(f"{min(shared)} is for training and for {name}: change train_files or {name}_files")
        self.train_set = self._windows(files["train"])
        self.val_set = self._windows(files["val"], self.eval_windows)
        self.test_set = self._windows(files["test"], self.eval_windows) if "test" in files else None

    def _windows(self, files: list[Path], limit: int | None = None) -> ShardWindows:
        return ShardWindows(files, self.dtype, self.seq_len, self.vocab_size, self.document_sep, self.header_bytes, limit)

    def _found(self, name: str, pattern: str) -> list[Path]:
        """Return the files of a pattern, in the order of their names."""
        if pattern == "random":
            return [self._random_file(name)]
        places = [Path(), *data_folders(self.root)] if self.root is None else [*data_folders(self.root), Path()]
        for place in places:
            if found := sorted(glob(str(place / Path(pattern).expanduser()), recursive=True)):
                return [Path(file).resolve() for file in found]
        raise FileNotFoundError(
            f"no file fits {name}_files={pattern!r} here or in {', '.join(map(str, data_folders(self.root)))}: "
            "give a pattern of .bin files of tokens"
        )

    def _random_file(self, name: str) -> Path:
        """Write 64 windows of random tokens to a file that lives as long as this object."""
        self._folder = self._folder or TemporaryDirectory()
        path = Path(self._folder.name).resolve() / f"{name}.bin"
        if not path.exists():
            tokens = np.random.default_rng([*name.encode()]).integers(self.vocab_size, size=64 * self.seq_len + 1)
            path.write_bytes(bytes(self.header_bytes) + tokens.astype(np.dtype(self.dtype).newbyteorder("<")).tobytes())
        return path
