"""The law of a block of three tokens that form a short Markov chain."""

import numpy as np

BLOCK_LENGTH = 3


def markov_block_table(num_states: int = 8) -> np.ndarray:
    r"""Return the probability of every block, float64 ``[S, S, S]``; ids are values minus one.

    The first token is uniform on 1..S. After a value v with two neighbours on either side, the next one is uniform on
    :math:`\{v - 2, \dots, v + 2\}` with probability 0.9 and uniform on the other values with probability 0.1; after the two
    lowest and the two highest values it is uniform on 1..S.

    Args:
        num_states: S; 8 in the paper.

    Raises:
        ValueError: if there are fewer than 6 states, for then no value has both neighbours and others.

    Source: Wan et al. 2026 (arXiv 2601.22519), simulation.
    """
    if num_states < 6:
        raise ValueError(f"a Markov block needs at least 6 states, got num_states={num_states}")
    transition_SS = np.full((num_states, num_states), 1 / num_states)
    for value in range(2, num_states - 2):
        near = np.abs(np.arange(num_states) - value) <= 2
        transition_SS[value] = np.where(near, 0.9 / near.sum(), 0.1 / (~near).sum())
    return np.einsum("ab,bc->abc", transition_SS / num_states, transition_SS)
