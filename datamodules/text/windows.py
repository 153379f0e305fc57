"""Windows of L + 1 tokens out of a long sequence: inputs are the first L, targets the last L."""

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from datamodules.base import BatchKey


class Tokens(Protocol):
    """A sequence of tokens, in memory or on disk."""

    def __len__(self) -> int: ...

    def windows(self, starts: np.ndarray, length: int) -> np.ndarray:
        """Return the tokens from each start on, ``[len(starts), length]``."""


class TokenArray:
    """A sequence of tokens in one array.

    Args:
        tokens: integers ``[T]``.
    """

    def __init__(self, tokens: np.ndarray) -> None:
        self.tokens = tokens

    def __len__(self) -> int:
        return len(self.tokens)

    def windows(self, starts: np.ndarray, length: int) -> np.ndarray:
        """Return the tokens from each start on, ``[len(starts), length]``."""
        return self.tokens[starts[:, None] + np.arange(length)]


class RandomWindows:
    """Windows whose starts are drawn uniformly, anew for each batch.

    A start depends on the seed, the epoch, the number of the batch and the row of the global batch alone.

    Args:
        tokens: a sequence of T tokens.
        length: length L of inputs and targets.
        per_epoch: windows that count as one epoch.
        seed: seed of the starts.

    Returns, for a key: ``tokens`` int64 ``[local batch, L + 1]``.
    """

    def __init__(self, tokens: Tokens, length: int, per_epoch: int, seed: int) -> None:
        self.tokens, self.length, self.per_epoch, self.seed = tokens, length, per_epoch, seed

    def __len__(self) -> int:
        return self.per_epoch

    def __getitem__(self, key: BatchKey) -> dict[str, Tensor]:
        starts = key.generator(self.seed).integers(len(self.tokens) - self.length, size=len(key.indices))[key.rows]
        return batch_of(self.tokens, starts, self.length)


class FixedWindows:
    """Windows side by side: window i begins at token i L, so that each token but the first is a target once.

    Tokens after the last whole window are left out.

    Args:
        tokens: a sequence of T tokens.
        length: length L of inputs and targets.
        limit: windows at most, spread evenly over the sequence; None takes all ``(T - 1) // L``.

    Returns, for a key: ``tokens`` int64 ``[local batch, L + 1]``.
    """

    def __init__(self, tokens: Tokens, length: int, limit: int | None = None) -> None:
        self.tokens, self.length = tokens, length
        available = whole_windows(tokens, length)
        chosen = min(limit or available, available)
        self.starts = np.arange(chosen) * available // chosen * length

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, key: BatchKey) -> dict[str, Tensor]:
        return batch_of(self.tokens, self.starts[key.local_indices], self.length)


def whole_windows(tokens: Tokens, length: int) -> int:
    """Return how many windows lie side by side, ``(T - 1) // L``."""
    return (len(tokens) - 1) // length


def batch_of(tokens: Tokens, starts: np.ndarray, length: int) -> dict[str, Tensor]:
    """Return ``tokens`` int64 ``[len(starts), L + 1]``."""
    return {"tokens": torch.from_numpy(tokens.windows(starts, length + 1).astype(np.int64))}


def check_length(tokens: Tokens, length: int, what: str) -> None:
    """Refuse a sequence that is too short for one window.

    Raises:
        ValueError: names the sequence and the remedy.
    """
    if len(tokens) <= length:
        raise ValueError(
            f"{what} has {len(tokens)} tokens, too few for one window of seq_len={length} and its last target: "
            "use a smaller seq_len or more text"
        )
