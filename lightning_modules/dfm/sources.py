"""Where a discrete flow starts: uniform tokens, or nothing but masks (plain torch)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lightning_modules.generative import counted_random

INIT_STREAM = 0


@dataclass(frozen=True)
class UniformSource:
    """Every token is uniform on the S tokens of the data.

    Args:
        num_tokens: S.
    """

    num_tokens: int

    def __post_init__(self) -> None:
        _check(self.num_tokens)

    @property
    def vocabulary_size(self) -> int:
        """V = S."""
        return self.num_tokens

    @property
    def mask_id(self) -> None:
        """There is no mask."""
        return

    def is_masked(self, x: Tensor) -> Tensor:
        """Return which tokens are masks: none."""
        return torch.zeros_like(x, dtype=torch.bool)

    def init(
        self,
        shape: Sequence[int],
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        seeds: Tensor | None = None,
    ) -> Tensor:
        """Draw states, int64.

        Args:
            shape: ``[B, D]``.
            generator: where random numbers come from; None takes the global generator.
            device: where the states are wanted.
            seeds: seed of each sample, int64 ``[B]``, in place of a generator: a sample then starts alike in any batch.
        """
        if seeds is not None:
            return (counted_random.uniform(seeds.to(device), INIT_STREAM, shape[1:]) * self.num_tokens).long()
        return torch.randint(self.num_tokens, tuple(shape), generator=generator, device=device)


@dataclass(frozen=True)
class MaskSource:
    """Every token is the mask, whose id comes after the S tokens of the data.

    Args:
        num_tokens: S.
    """

    num_tokens: int

    def __post_init__(self) -> None:
        _check(self.num_tokens)

    @property
    def vocabulary_size(self) -> int:
        """V = S + 1."""
        return self.num_tokens + 1

    @property
    def mask_id(self) -> int:
        """S, the last id."""
        return self.num_tokens

    def is_masked(self, x: Tensor) -> Tensor:
        """Return which tokens are masks."""
        return x == self.mask_id

    def init(
        self,
        shape: Sequence[int],
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        seeds: Tensor | None = None,
    ) -> Tensor:
        """Return nothing but masks, int64 of the shape ``[B, D]``; the generator and the seeds are not used."""
        return torch.full(tuple(shape), self.mask_id, device=device)


Source = UniformSource | MaskSource


def _check(num_tokens: int) -> None:
    if num_tokens < 2:
        raise ValueError(f"a source needs at least two tokens, got num_tokens={num_tokens}")
