"""Paths whose tokens approach the data through ever nearer values of a codebook (plain torch).

Legend: B samples, D tokens, V ids, E width of an embedding.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_modules.dfm.path import PATH_STREAM, PathSample
from lightning_modules.dfm.schedulers import PolynomialScheduler
from lightning_modules.dfm.solvers.categorical import draw
from lightning_modules.generative import counted_random


class MetricPath:
    r"""A token is near its data value, the more so the later.

    .. math::
        p_t(z \mid x_1) = \operatorname{softmax}_z(-\beta_t \, d(z, x_1)), \qquad \beta_t = c \Bigl( \frac t{1 - t} \Bigr)^a

    At t = 0 all values are alike, so the source is uniform. Given the data, a token moves at the rates

    .. math::
        Q_t(z \mid y, x_1) = p_t(z \mid x_1) \, \beta'_t \, [d(y, x_1) - d(z, x_1)]_+

    Args:
        distance: d, ``[V, V]``, 0 on the diagonal and positive elsewhere; see :func:`embedding_distance`.
        c: scale of β.
        a: exponent of β; β' counts as 0 at t = 0, where it is infinite for a < 1.

    Raises:
        ValueError: if d is no such table, or c or a is not positive.

    Source: Shaul et al. 2024 (arXiv 2412.03487); c and a as in FUDOKI (arXiv 2505.20147).
    """

    def __init__(self, distance: Tensor, c: float = 3.0, a: float = 0.9) -> None:
        if distance.ndim != 2 or distance.shape[0] != distance.shape[1]:
            raise ValueError(f"a metric path needs distances [V, V], got {tuple(distance.shape)}")
        elsewhere = ~torch.eye(len(distance), dtype=torch.bool, device=distance.device)
        if bool((distance.diagonal() != 0).any()) or not bool((distance[elsewhere] > 0).all()):
            raise ValueError("distances must be 0 on the diagonal and positive elsewhere, or values could not be told apart")
        if c <= 0 or a <= 0:
            raise ValueError(f"c={c} and a={a} must be positive")
        self.distance, self.c, self.a = distance, c, a
        self.scheduler = PolynomialScheduler(1.0)
        """Serves solvers for their grid of times only."""

    def beta(self, t: Tensor | float) -> Tensor:
        """Return β, float64."""
        t = torch.as_tensor(t, dtype=torch.float64)
        return self.c * (t / (1 - t)) ** self.a

    def dbeta(self, t: Tensor | float) -> Tensor:
        r"""Return :math:`\beta'_t = \frac{c a}{(1 - t)^2} \bigl( \frac t{1 - t} \bigr)^{a - 1}`, and 0 at t = 0."""
        t = torch.as_tensor(t, dtype=torch.float64)
        slope = self.c * self.a * (t / (1 - t)) ** (self.a - 1) / (1 - t) ** 2
        return torch.where(t > 0, slope, 0.0)

    def log_probabilities(self, x_1: Tensor, t: Tensor | float) -> Tensor:
        """Return log p of every value, ``[B, D, V]``, for data ``[B, D]`` and times that broadcast with it."""
        distance_BDV = self._distances(x_1)
        return (-self.beta(t).to(distance_BDV).unsqueeze(-1) * distance_BDV).log_softmax(dim=-1)

    def rates(self, y: Tensor, x_1: Tensor, t: Tensor | float) -> Tensor:
        """Return Q, ``[B, D, V]``, for states and data ``[B, D]`` and times that broadcast with them; 0 where z is y."""
        return self.rates_between(y, x_1)(t)

    def rates_between(self, y: Tensor, x_1: Tensor) -> Callable[[Tensor | float], Tensor]:
        """Return :meth:`rates` as a function of time, which looks the distances up only once."""
        distance_BDV = self._distances(x_1)
        nearer_BDV = (distance_BDV.gather(-1, y.unsqueeze(-1)) - distance_BDV).clamp_min(0)

        def rates(t: Tensor | float) -> Tensor:
            beta, slope = (value.to(distance_BDV).unsqueeze(-1) for value in (self.beta(t), self.dbeta(t)))
            return (-beta * distance_BDV).softmax(dim=-1) * slope * nearer_BDV

        return rates

    def sample(
        self, x_0: Tensor, x_1: Tensor, t: Tensor, generator: torch.Generator | None = None, seeds: Tensor | None = None
    ) -> PathSample:
        """Draw a point of the path; arguments as in :meth:`DiscretePath.sample`, but the source has no part."""
        if seeds is not None:
            uniform_BD = counted_random.uniform(seeds, PATH_STREAM, x_1.shape[1:])
        else:
            uniform_BD = torch.rand(x_1.shape, generator=generator, dtype=torch.float64, device=x_1.device)
        p_BDV = self.log_probabilities(x_1, t.unsqueeze(-1)).exp()
        return PathSample(draw(p_BDV.cumsum(dim=-1), uniform_BD), x_1, x_0, t)

    def _distances(self, x_1: Tensor) -> Tensor:
        self.distance = self.distance.to(x_1.device)
        return self.distance[x_1]


def embedding_distance(embedding_VE: Tensor) -> Tensor:
    r"""Return :math:`d(z, y) = \lVert e_z - e_y \rVert^4` of embeddings scaled to length 1, ``[V, V]``."""
    direction_VE = F.normalize(embedding_VE, dim=-1)
    squared_VV = (2 - 2 * direction_VE @ direction_VE.T).clamp_min(0)
    return squared_VV.square().fill_diagonal_(0)
