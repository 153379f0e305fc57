"""Sequences made of independent first-order Markov chains, whose law is known.

Legend: n sequences, D tokens of a sequence, L tokens of a block, K blocks, S tokens of the vocabulary.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Chain:
    r"""K independent chains of L tokens, one behind the other.

    .. math::
        p(x) = \prod_{k=1}^{K} \pi(x_{k1}) \prod_{l=2}^{L} P_{x_{k,l-1}, x_{kl}}

    Attributes:
        initial_S: π, float64 ``[S]``.
        transition_SS: P, a row a predecessor, float64 ``[S, S]``.
        block_length: L.
        blocks: K.

    Raises:
        ValueError: if they are no probabilities, or a size is not positive.
    """

    initial_S: np.ndarray
    transition_SS: np.ndarray
    block_length: int
    blocks: int = 1

    def __post_init__(self) -> None:
        size = len(self.initial_S)
        if self.transition_SS.shape != (size, size):
            raise ValueError(f"a chain of {size} tokens needs a transition matrix {size} x {size}, got {self.transition_SS.shape}")
        for name, table in {"initial_S": self.initial_S, "transition_SS": self.transition_SS}.items():
            if (table < 0).any() or not np.allclose(table.sum(-1), 1):
                raise ValueError(f"{name} of a chain must hold probabilities whose rows sum to 1")
        for name, number in {"block_length": self.block_length, "blocks": self.blocks}.items():
            if number < 1:
                raise ValueError(f"{name}={number} of a chain must be at least 1")

    @property
    def vocab_size(self) -> int:
        """S."""
        return len(self.initial_S)

    @property
    def length(self) -> int:
        """``D = K L``."""
        return self.blocks * self.block_length

    @property
    def entropy(self) -> float:
        r"""Entropy of a sequence in nats, :math:`K (H(\pi) + \sum_{l=2}^{L} (\pi P^{l-2})_s H(P_s))`."""
        row_S = _entropy(self.transition_SS)
        law_S, total = self.initial_S, float(_entropy(self.initial_S))
        for _ in range(self.block_length - 1):
            total += float(law_S @ row_S)
            law_S = law_S @ self.transition_SS
        return self.blocks * total

    def sample(self, count: int, generator: np.random.Generator) -> np.ndarray:
        """Draw sequences, int64 ``[count, D]``."""
        draws_nKL = generator.random((count, self.blocks, self.block_length))
        tokens_nKL = np.empty(draws_nKL.shape, dtype=np.int64)
        initial_S, transition_SS = _cumulative(self.initial_S), _cumulative(self.transition_SS)
        tokens_nKL[..., 0] = np.searchsorted(initial_S, draws_nKL[..., 0], side="right")
        for place in range(1, self.block_length):
            before_nK = tokens_nKL[..., place - 1]
            tokens_nKL[..., place] = (draws_nKL[..., place, None] >= transition_SS[before_nK]).sum(axis=-1)
        return tokens_nKL.reshape(count, self.length)


def stationary(transition_SS: np.ndarray) -> np.ndarray:
    r"""Return the law with :math:`\pi = \pi P` of an irreducible chain, ``[S]``."""
    size = len(transition_SS)
    equations = np.vstack([transition_SS.T - np.eye(size), np.ones(size)])
    return np.linalg.lstsq(equations, np.append(np.zeros(size), 1.0), rcond=None)[0]


def _cumulative(table: np.ndarray) -> np.ndarray:
    """Return sums up to each token; the last is above every draw."""
    sums = table.cumsum(axis=-1)
    sums[..., -1] = np.inf
    return sums


def _entropy(table: np.ndarray) -> np.ndarray:
    """Entropy of each row in nats."""
    return -(table * np.log(np.where(table > 0, table, 1.0))).sum(axis=-1)
