"""Metrics of answers that are right or wrong cell by cell; all states are sums, so that ranks of unequal size count rightly."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torchmetrics import Metric


class _Share(Metric):
    """A ratio of two sums."""

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    hits: Tensor
    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("hits", torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")
        self.add_state("total", torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")

    def compute(self) -> Tensor:
        return self.hits / self.total


class ExactSolve(_Share):
    """Share of samples of which every cell is right."""

    def update(self, predictions: Tensor, targets: Tensor) -> None:
        """Count boards; both arguments have shape ``[B, cells]``."""
        solved_B = (predictions == targets).all(dim=1)
        self.hits += solved_B.sum()
        self.total += solved_B.numel()


class CellAccuracy(_Share):
    """Share of right cells.

    Args:
        blanks_only: count only the cells that the puzzle left blank.
    """

    def __init__(self, blanks_only: bool = False) -> None:
        super().__init__()
        self.blanks_only = blanks_only

    def update(self, predictions: Tensor, targets: Tensor, blanks: Tensor | None = None) -> None:
        """Count cells; all arguments have shape ``[B, cells]``.

        Raises:
            ValueError: if only blanks count and ``blanks`` is missing.
        """
        right = predictions == targets
        if not self.blanks_only:
            self.hits += right.sum()
            self.total += right.numel()
            return
        if blanks is None:
            raise ValueError("CellAccuracy(blanks_only=True) needs blanks, the mask of cells that the puzzle left blank")
        self.hits += (right & blanks).sum()
        self.total += blanks.sum()


class IterationsToSolve(_Share):
    """Mean number of iterations from which an answer is right and stays right, over the samples that end right.

    It is not a number when no sample ends right.
    """

    higher_is_better = False

    def update(self, solved_KB: Tensor, iterations: Sequence[int]) -> None:
        """Count samples.

        Args:
            solved_KB: whether the answer at each of K iterations is right.
            iterations: the K iteration numbers, rising.

        Raises:
            ValueError: if the numbers do not rise or are not K.
        """
        numbers = list(iterations)
        if len(numbers) != len(solved_KB) or numbers != sorted(set(numbers)):
            raise ValueError(f"IterationsToSolve got {len(solved_KB)} answers for the iterations {numbers}, which must rise")
        stays_KB = solved_KB.long().flip(0).cumprod(dim=0).flip(0)
        first_B = (len(numbers) - stays_KB.sum(dim=0)).clamp_max(len(numbers) - 1)
        ends_right_B = solved_KB[-1]
        at_B = torch.tensor(numbers, device=solved_KB.device)[first_B]
        self.hits += at_B[ends_right_B].sum()
        self.total += ends_right_B.sum()
