"""How far sequences of tokens are from a known law, or from other sequences, as torchmetrics.

Legend: n sequences, D tokens, S tokens of the vocabulary, L tokens of a block, M cells of a histogram.
"""

import torch
from torch import Tensor
from torchmetrics import Metric

MOST_CELLS = 4_000_000


def chain_log_likelihood(tokens_nD: Tensor, initial_S: Tensor, transition_SS: Tensor, block_length: int) -> Tensor:
    r"""Return the log-likelihood of sequences of independent chains of L tokens, one behind the other, ``[n]``.

    .. math::
        \log p(x) = \sum_k \Bigl( \log \pi(x_{k1}) + \sum_{l=2}^{L} \log P_{x_{k,l-1}, x_{kl}} \Bigr)

    Args:
        tokens_nD: sequences, int64 ``[n, D]``; L divides D.
        initial_S: π, ``[S]``.
        transition_SS: P, a row a predecessor, ``[S, S]``.
        block_length: L.

    Raises:
        ValueError: if L does not divide D.
    """
    if tokens_nD.shape[1] % block_length:
        raise ValueError(f"sequences of {tokens_nD.shape[1]} tokens are not made of blocks of {block_length}")
    tokens_nKL = tokens_nD.unflatten(1, (-1, block_length))
    first_nK = initial_S.log()[tokens_nKL[..., 0]]
    later_nKL = transition_SS.log()[tokens_nKL[..., :-1], tokens_nKL[..., 1:]]
    return first_nK.sum(dim=1) + later_nKL.sum(dim=(1, 2))


def cells(tokens_nD: Tensor, vocab_size: int) -> Tensor:
    """Return the number of each sequence when its tokens are read as digits, the first one the highest, ``[n]``."""
    number_n = tokens_nD.new_zeros(tokens_nD.shape[:-1])
    for place in range(tokens_nD.shape[-1]):
        number_n = number_n * vocab_size + tokens_nD[..., place]
    return number_n


class ChainNLL(Metric):
    """Mean negative log-likelihood of a token, in nats, under a chain; see :func:`chain_log_likelihood`.

    Args:
        initial_S: π, ``[S]``.
        transition_SS: P, ``[S, S]``.
        block_length: L.
        entropy: subtracted from the mean; with the entropy of a token it is the excess over what the chain's own samples have.
    """

    total: Tensor
    count: Tensor
    higher_is_better = False
    full_state_update = False

    def __init__(self, initial_S: Tensor, transition_SS: Tensor, block_length: int, entropy: float = 0.0) -> None:
        super().__init__()
        self.register_buffer("initial_S", initial_S.double(), persistent=False)
        self.register_buffer("transition_SS", transition_SS.double(), persistent=False)
        self.block_length, self.entropy = block_length, entropy
        for name in ("total", "count"):
            self.add_state(name, torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    initial_S: Tensor
    transition_SS: Tensor

    def update(self, tokens_nD: Tensor) -> None:
        """Add sequences, int64 ``[n, D]``."""
        self.total -= chain_log_likelihood(tokens_nD, self.initial_S, self.transition_SS, self.block_length).sum()
        self.count += tokens_nD.numel()

    def compute(self) -> Tensor:
        return self.total / self.count - self.entropy


class DiscreteTV(Metric):
    r"""Total variation :math:`\tfrac12 \sum_c |\hat p_c - p_c|` between the histogram of samples and a known law.

    With n samples of that very law it is about :math:`\sum_c \sqrt{p_c (1 - p_c) / (2 \pi n)}`, not 0.

    Args:
        law_M: p, ``[M]``.
    """

    counts_M: Tensor
    higher_is_better = False
    full_state_update = False

    def __init__(self, law_M: Tensor) -> None:
        super().__init__()
        self.register_buffer("law_M", law_M.double(), persistent=False)
        self.add_state("counts_M", torch.zeros(len(law_M), dtype=torch.int64), dist_reduce_fx="sum")

    law_M: Tensor

    def update(self, cell_n: Tensor) -> None:
        """Add samples, each by its cell, int64 ``[n]``."""
        self.counts_M += torch.bincount(cell_n, minlength=len(self.law_M))

    def compute(self) -> Tensor:
        return (self.counts_M / self.counts_M.sum() - self.law_M).abs().sum() / 2


class NGramTV(Metric):
    """Total variation between the n tokens in a row of real and of generated sequences.

    Args:
        vocab_size: S.
        order: n.

    Raises:
        ValueError: if there would be more than four million cells, or one of both kinds has no sequence.
    """

    counts_2M: Tensor
    higher_is_better = False
    full_state_update = False

    def __init__(self, vocab_size: int, order: int) -> None:
        super().__init__()
        if order < 1 or vocab_size**order > MOST_CELLS:
            raise ValueError(f"order={order} of {vocab_size} tokens must be from 1 on and have at most {MOST_CELLS} cells")
        self.vocab_size, self.order = vocab_size, order
        self.add_state("counts_2M", torch.zeros(2, vocab_size**order, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, tokens_nD: Tensor, real: bool) -> None:
        """Add sequences, int64 ``[n, D]``, real or generated ones."""
        rows = cells(tokens_nD.unfold(1, self.order, 1), self.vocab_size).flatten()
        self.counts_2M[int(real)] += torch.bincount(rows, minlength=self.counts_2M.shape[1])

    def compute(self) -> Tensor:
        totals_21 = self.counts_2M.sum(dim=1, keepdim=True)
        if (totals_21 == 0).any():
            raise ValueError("NGramTV compares real sequences with generated ones: one of both kinds is missing")
        made_M, real_M = self.counts_2M / totals_21
        return (made_M - real_M).abs().sum() / 2
