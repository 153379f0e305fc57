"""The posterior of independent blocks of tokens (plain torch).

Legend: B samples, D tokens, L tokens of a block, V ids.
"""

from torch import Tensor, nn


class BlockOracle(nn.Module):
    r"""Each block of L tokens has the posterior of one oracle, and knows nothing of the others.

    Args:
        oracle: ``oracle(x=, t=)`` returns the probabilities of a block.
        block_length: L, a divisor of D.
    """

    def __init__(self, oracle: nn.Module, block_length: int) -> None:
        super().__init__()
        self.oracle, self.block_length = oracle, block_length

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        """Return probabilities ``[B, D, V]`` of states ``[B, D]`` at times ``[B]``."""
        blocks = x.unflatten(1, (-1, self.block_length))
        p = self.oracle(x=blocks.flatten(0, 1), t=t.repeat_interleave(blocks.shape[1]))
        return p.unflatten(0, blocks.shape[:2]).flatten(1, 2)
