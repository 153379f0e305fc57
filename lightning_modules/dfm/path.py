"""The mixture path from source tokens to data tokens (plain torch).

Legend: B samples, D tokens.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lightning_modules.dfm.schedulers import wrap_scheduler
from lightning_modules.generative import counted_random

PATH_STREAM = -1


@dataclass(frozen=True)
class PathSample:
    """A point of a path, ``x_t`` ``[B, D]`` at ``t`` ``[B]``, with its ends ``x_1`` (data) and ``x_0`` (source)."""

    x_t: Tensor
    x_1: Tensor
    x_0: Tensor
    t: Tensor


class DiscretePath:
    r"""Each token keeps its source value with probability :math:`1 - \kappa(t)` and else takes its data value.

    .. math::
        p_t(x^i \mid x_0, x_1) = (1 - \kappa_t) \, \delta_{x_0^i} + \kappa_t \, \delta_{x_1^i}

    Args:
        scheduler: κ, anything that :func:`~lightning_modules.dfm.schedulers.wrap_scheduler` takes.

    Source: Gat et al. 2024 (arXiv 2407.15595), the mixture path with independent coupling.
    """

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = wrap_scheduler(scheduler)

    def sample(
        self, x_0: Tensor, x_1: Tensor, t: Tensor, generator: torch.Generator | None = None, seeds: Tensor | None = None
    ) -> PathSample:
        """Draw a point of the path.

        Args:
            x_0: source tokens, int64 ``[B, D]``.
            x_1: data tokens, of the same shape.
            t: time of each sample, ``[B]``.
            generator: where random numbers come from; None takes the global generator.
            seeds: seed of each sample, int64 ``[B]``, in place of a generator.

        Raises:
            ValueError: if the shapes do not belong together.
        """
        if x_0.shape != x_1.shape or t.shape != x_1.shape[:1]:
            raise ValueError(
                f"a path needs x_0 and x_1 of one shape and a time for each sample, "
                f"got {tuple(x_0.shape)}, {tuple(x_1.shape)} and t {tuple(t.shape)}"
            )
        if seeds is not None:
            uniform = counted_random.uniform(seeds, PATH_STREAM, x_1.shape[1:])
        else:
            uniform = torch.rand(x_1.shape, generator=generator, device=x_1.device)
        kappa = self.scheduler.kappa(t).view(-1, *[1] * (x_1.ndim - 1))
        return PathSample(torch.where(uniform < kappa, x_1, x_0), x_1, x_0, t)
