"""Tokens of chains whose law is known: the paper's blocks of three tokens, and letters of English."""

from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from datamodules.base import LeydenDataModule
from datamodules.checks import check_positive
from datamodules.tokens.chains import Chain, stationary
from datamodules.tokens.token_sets import FreshTokens, StoredTokens

COUNTS = Path(__file__).with_name("bigram_counts.txt")
LETTERS = "abcdefghijklmnopqrstuvwxyz "
BLOCK, TOKENS, NEAR = 3, 8, 2


class ChainDataModule(LeydenDataModule, ABC):
    """Sequences of a known chain: fresh ones in each training batch, fixed ones for validation and test.

    A batch is ``{"tokens": int64 [B, D], "seed": int64 [B]}``; the seed is what else is random about a sequence is made of.

    Args:
        train_size: sequences that count as an epoch.
        val_size: sequences of the validation.
        test_size: sequences of the test.
        batch_size: global batch size.
        eval_batch_size: global batch size of validation, test and prediction; default ``batch_size``.
        num_workers: loader processes per rank.
        seed: seed of the training sequences.
        generator_seed: seed of the sequences of validation and test, apart from ``seed`` so that runs of several seeds share them.

    Raises:
        ValueError: if a size is not positive.
    """

    smoke: ClassVar[dict[str, Any]] = {
        **{"train_size": 64, "val_size": 16, "test_size": 16, "batch_size": 16},
        **{"eval_batch_size": 16, "num_workers": 0},
    }

    def __init__(
        self,
        train_size: int = 51_200,
        val_size: int = 2_048,
        test_size: int = 2_048,
        batch_size: int = 512,
        eval_batch_size: int | None = None,
        num_workers: int = 0,
        seed: int = 0,
        generator_seed: int = 0,
    ) -> None:
        super().__init__(batch_size, eval_batch_size, num_workers, seed)
        check_positive(train_size=train_size, val_size=val_size, test_size=test_size)
        self.train_size, self.val_size, self.test_size, self.generator_seed = train_size, val_size, test_size, generator_seed

    @property
    @abstractmethod
    def chain(self) -> Chain:
        """The law of the data."""

    def setup(self, stage: str) -> None:
        """Draw the sequences of validation and test."""
        self.train_set = FreshTokens(self.chain, self.train_size, self.seed)
        self.val_set, self.test_set = (
            StoredTokens(self.chain.sample(size, np.random.default_rng((self.generator_seed, split))), self.chain.vocab_size)
            for split, size in enumerate((self.val_size, self.test_size))
        )

    def model_arguments(self) -> dict[str, Any]:
        """Size of the vocabulary and length of a sequence."""
        return {"vocab_size": self.chain.vocab_size, "length": self.chain.length}


class MarkovBlocksDataModule(ChainDataModule):
    r"""K independent blocks of three tokens, as in the paper's simulation.

    With tokens called 1 to 8, the first is uniform; after a token v from 3 to 6 the next is, with probability 0.9, uniform on
    v - 2 to v + 2, and otherwise uniform on the three others; after any other token it is uniform on all. A block has the entropy
    6.0279478375 nats. Ids are these numbers minus 1.

    Args:
        blocks: K; a sequence has D = 3 K tokens.
        **options: those of :class:`ChainDataModule`.

    Source: Corrected Samplers for Discrete Flow Models (arXiv 2601.22519), the authors' simulation.
    """

    smoke: ClassVar[dict[str, Any]] = {**ChainDataModule.smoke, "blocks": 1}

    def __init__(self, blocks: int = 1, **options: Any) -> None:
        super().__init__(**options)
        check_positive(blocks=blocks)
        self.blocks = blocks

    @cached_property
    def chain(self) -> Chain:
        return Chain(np.full(TOKENS, 1 / TOKENS), _block_transition(), BLOCK, self.blocks)


class BigramOracleDataModule(ChainDataModule):
    """Sequences of the letters a to z and the space, of a first-order chain that was fitted on English.

    The counts are those of neighbouring characters in the help topics of Python 3.11 (375 757 characters, capitals made small,
    each run of anything else one space); 0.5 is added to each. The first letter has the stationary law, so a letter of 32 has the
    entropy 2.3212 nats.

    Args:
        length: letters D of a sequence.
        **options: those of :class:`ChainDataModule`.
    """

    smoke: ClassVar[dict[str, Any]] = {**ChainDataModule.smoke, "length": 8}

    def __init__(self, length: int = 32, **options: Any) -> None:
        super().__init__(**options)
        check_positive(length=length)
        self.length = length

    @cached_property
    def chain(self) -> Chain:
        counts = np.loadtxt(COUNTS) + 0.5
        transition = counts / counts.sum(axis=1, keepdims=True)
        return Chain(stationary(transition), transition, self.length)

    def decode(self, ids: np.ndarray) -> str:
        """Return the text of ids."""
        return "".join(LETTERS[i] for i in np.asarray(ids).tolist())


def _block_transition() -> np.ndarray:
    """Return the transition matrix of a block, ``[8, 8]``."""
    value = np.arange(1, TOKENS + 1)
    near = np.abs(value[:, None] - value[None, :]) <= NEAR
    inner = np.where(near, 0.9 / near.sum(axis=1, keepdims=True), 0.1 / (~near).sum(axis=1, keepdims=True))
    middle = (value > NEAR) & (value <= TOKENS - NEAR)
    return np.where(middle[:, None], inner, 1 / TOKENS)
