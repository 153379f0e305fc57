"""Sequences of D tokens, each with a seed for whatever is random about it.

Legend: n sequences, B rows of a batch, D tokens.
"""

import numpy as np
import torch
from torch import Tensor

from datamodules.base import BatchDataset, BatchKey
from datamodules.tokens.chains import Chain

SEED_STREAM = 0x5EED
"""Added to the seed of a dataset that draws something itself, so that its seeds are other random numbers."""


class StoredTokens:
    """Sequences from an array, which may be mapped into memory.

    Args:
        tokens_nD: whole numbers, ``[n, D]``.
        vocab_size: number of tokens; a larger id is refused when it is read.
        seed: seed of the seeds; None: the seed of a sequence is its number.

    Returns, for a key: ``tokens`` and ``seed``, int64 ``[B, D]`` and ``[B]``.
    """

    def __init__(self, tokens_nD: np.ndarray, vocab_size: int, seed: int | None = None) -> None:
        self.tokens_nD, self.vocab_size, self.seed = tokens_nD, vocab_size, seed

    def __len__(self) -> int:
        return len(self.tokens_nD)

    def __getitem__(self, key: BatchKey) -> dict[str, Tensor]:
        tokens_BD = np.asarray(self.tokens_nD[key.local_indices], dtype=np.int64)
        if tokens_BD.size and not 0 <= tokens_BD.min() <= tokens_BD.max() < self.vocab_size:
            raise ValueError(
                f"tokens from {tokens_BD.min()} to {tokens_BD.max()}, expected 0 to {self.vocab_size - 1}: "
                "give the vocab_size of the tokenizer that made them"
            )
        return {"tokens": torch.from_numpy(tokens_BD), "seed": torch.from_numpy(key.seeds(self.seed))}


class FreshTokens:
    """Sequences of a chain that are drawn anew in each batch.

    Args:
        chain: what they are drawn from.
        per_epoch: sequences that count as an epoch.
        seed: seed of the sequences and of their seeds.
    """

    def __init__(self, chain: Chain, per_epoch: int, seed: int) -> None:
        self.chain, self.per_epoch, self.seed = chain, per_epoch, seed

    def __len__(self) -> int:
        return self.per_epoch

    def __getitem__(self, key: BatchKey) -> dict[str, Tensor]:
        tokens_BD = self.chain.sample(len(key.indices), key.generator(self.seed))[key.rows]
        return {"tokens": torch.from_numpy(tokens_BD), "seed": torch.from_numpy(key.seeds(self.seed + SEED_STREAM))}


class WithSeeds:
    """Another dataset whose batches get a ``seed`` for each row, int64 ``[B]``.

    Args:
        dataset: dataset of whole batches.
        seed: seed of the seeds; None: the seed of a row is its number.
    """

    def __init__(self, dataset: BatchDataset, seed: int | None = None) -> None:
        self.dataset, self.seed = dataset, seed

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, key: BatchKey) -> dict[str, Tensor]:
        seed = None if self.seed is None else self.seed + SEED_STREAM
        return {**self.dataset[key], "seed": torch.from_numpy(key.seeds(seed))}
