"""Draw indices in proportion to their priorities: a cumulative sum for few items, a sum tree for many.

Both classes give the same index for the same uniform number, up to rounding, and keep no state but the priorities.
"""

import torch
from torch import Tensor


class CumulativeSum:
    """Priorities whose cumulative sum is formed anew for every draw: O(capacity), fastest up to some 1e5 items.

    Args:
        capacity: number of items; their priority is 0 until it is set.
    """

    def __init__(self, capacity: int) -> None:
        self.priorities = torch.zeros(capacity, dtype=torch.float64)

    def set(self, index_B: Tensor, priority_B: Tensor) -> None:
        """Set priorities; of several for one item the largest holds, so that the result does not depend on an order."""
        self.priorities[index_B] = 0.0
        self.priorities.scatter_reduce_(0, index_B, priority_B, "amax")

    def draw(self, uniform_B: Tensor) -> tuple[Tensor, Tensor]:
        """Draw one index for each uniform number.

        Args:
            uniform_B: float64 numbers in [0, 1).

        Returns:
            Indices, of which none has priority 0, and the probability with which each was drawn.
        """
        sums = self.priorities.cumsum(0)
        index_B = torch.searchsorted(sums, uniform_B * sums[-1], right=True)
        return index_B, self.priorities[index_B] / sums[-1]


class SumTree(CumulativeSum):
    """Priorities with sums of groups, sums of those, and so on: O(log capacity) for one draw or change.

    A node's sum is always formed from its children in the same order, never by adding differences, so that a tree built from the
    priorities alone is bit for bit the tree that grew by single changes.

    Args:
        capacity: number of items; their priority is 0 until it is set.
        children: children of a node.
    """

    def __init__(self, capacity: int, children: int = 32) -> None:
        self.children = children
        self._levels: list[Tensor] = []  # from the leaves to the root's children, each of shape [nodes, children]
        while not self._levels or capacity > 1:
            capacity = -(-capacity // children)
            self._levels.append(torch.zeros(capacity, children, dtype=torch.float64))
        self.priorities = self._levels[0].view(-1)

    def set(self, index_B: Tensor, priority_B: Tensor) -> None:
        super().set(index_B, priority_B)
        for below, level in zip(self._levels, self._levels[1:], strict=False):
            index_B = index_B // self.children
            level.view(-1)[index_B] = below[index_B].cumsum(1)[:, -1]

    def draw(self, uniform_B: Tensor) -> tuple[Tensor, Tensor]:
        total = self._levels[-1].cumsum(1)[0, -1]
        rest_B = uniform_B * total
        index_B = torch.zeros_like(uniform_B, dtype=torch.long)
        for level in reversed(self._levels):
            sums_BC = level[index_B].cumsum(1)
            # rounding may leave a rest as large as the sum, which would lead past the last child
            rest_B = torch.minimum(rest_B, sums_BC[:, -1].nextafter(torch.zeros_like(rest_B)))
            child_B = torch.searchsorted(sums_BC, rest_B[:, None], right=True)[:, 0]
            before_B = sums_BC.gather(1, (child_B - 1).clamp_min(0)[:, None])[:, 0]
            rest_B = rest_B - before_B.where(child_B > 0, 0.0)
            index_B = index_B * self.children + child_B
        return index_B, self.priorities[index_B] / total
