"""Token files too large for memory, cut into windows of L + 1 tokens.

Legend: B rows of a batch, L inputs of a window.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from datamodules.base import BatchKey


class ShardWindows:
    """Windows side by side in several files of little-endian tokens; none reaches over the end of its file.

    The files are mapped into memory, by each loader process for itself. With a separator each token knows its document,

    .. math:: \\text{documents}_{bt} = \\#\\{ s \\le t : \\text{tokens}_{bs} = \\text{separator} \\},

    so that a separator belongs to the document that it opens, and the first token after it is predicted from it alone.

    Args:
        files: the shards, in their order.
        dtype: ``uint16`` or ``uint32``.
        length: length L of inputs and targets.
        vocab_size: number of tokens; a larger id is refused when it is read.
        separator: id of the token between documents.
        header_bytes: bytes before the first token of each file.
        limit: windows at most, spread evenly; None takes all.

    Returns, for a key: ``tokens`` int64 ``[B, L + 1]`` and, with a separator, ``documents`` int64 ``[B, L + 1]``.

    Raises:
        ValueError: if a file is not made of whole tokens, or no file is long enough for a window.
    """

    def __init__(
        self,
        files: Sequence[Path],
        dtype: str,
        length: int,
        vocab_size: int,
        separator: int | None = None,
        header_bytes: int = 0,
        limit: int | None = None,
    ) -> None:
        self.files, self.dtype = list(files), np.dtype(dtype).newbyteorder("<")
        self.length, self.vocab_size, self.separator, self.header_bytes = length, vocab_size, separator, header_bytes
        windows = [max(self._tokens(file) - 1, 0) // length for file in self.files]
        self.ends = np.cumsum(windows)
        available = int(self.ends[-1])
        if not available:
            raise ValueError(f"{self.files[0].parent} has no file of {length + 1} tokens: use a smaller seq_len or longer files")
        self.limit, self.available = min(limit or available, available), available
        self._maps: dict[int, np.ndarray] = {}

    def __len__(self) -> int:
        return self.limit

    def __getitem__(self, key: BatchKey) -> dict[str, Tensor]:
        windows = key.local_indices * self.available // self.limit
        shards = np.searchsorted(self.ends, windows, side="right")
        firsts = np.concatenate([[0], self.ends])[shards]
        starts = (windows - firsts) * self.length
        rows = [self._map(shard)[start : start + self.length + 1] for shard, start in zip(shards.tolist(), starts, strict=True)]
        tokens = np.stack(rows).astype(np.int64)
        wrong = tokens.max(axis=1) >= self.vocab_size
        if wrong.any():
            file = self.files[shards[wrong.argmax()]]
            raise ValueError(
                f"{file} holds the token {tokens.max()}, beyond vocab_size={self.vocab_size}: "
                "set vocab_size to that of its tokenizer, or dtype or header_bytes to those of the file"
            )
        batch = {"tokens": torch.from_numpy(tokens)}
        if self.separator is not None:
            batch["documents"] = torch.from_numpy((tokens == self.separator).cumsum(axis=1))
        return batch

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_maps": {}}  # a pickled map would be a copy of its file

    def _tokens(self, file: Path) -> int:
        size = file.stat().st_size - self.header_bytes
        if size < 0 or size % self.dtype.itemsize:
            raise ValueError(
                f"{file} has {file.stat().st_size} bytes, which are not {self.header_bytes} of a header "
                f"and whole {self.dtype.name} tokens: set dtype and header_bytes to those of the file, or replace it"
            )
        return size // self.dtype.itemsize

    def _map(self, shard: int) -> np.ndarray:
        if shard not in self._maps:
            self._maps[shard] = np.memmap(self.files[shard], dtype=self.dtype, mode="r", offset=self.header_bytes)
        return self._maps[shard]
