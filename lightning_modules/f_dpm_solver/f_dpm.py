"""F-DPMSolver, which freezes the data prediction at the clean end of a step (plain torch)."""

import math
import warnings
from collections import deque
from collections.abc import Iterator
from typing import Literal

from torch import Tensor

from lightning_modules.f_dpm_solver.denoiser import DataPrediction
from lightning_modules.f_dpm_solver.exponential_weights import combine, for_noise_parts, noise_part, noise_step
from lightning_modules.f_dpm_solver.grids import Grid
from lightning_modules.f_dpm_solver.sampler import Sampler, data_coefficients, move

FEW_STEPS = 8


def first_lookahead_scale(grid: Grid) -> float:
    r"""Return :math:`k_0`, by which the first lookahead rescales the initial noise: :math:`\hat x_1 = k_0 x_0`.

    The initial state is its own noise prediction, :math:`e_0 = x_0 / n` with :math:`n = \sqrt{a_0^2 + s_0^2}` (1 where variance is
    preserved), so that

    .. math::
        k_0 = \frac{a_1}{a_0} + \Bigl( s_1 - \frac{a_1 s_0}{a_0} \Bigr) \frac1n
            = \frac1n \Bigl( s_1 + \frac{a_0 a_1}{n + s_0} \Bigr),

    whose second form also holds at :math:`a_0 = 0`.

    Args:
        grid: points.
    """
    (a_0, a_1), (s_0, s_1) = grid.numbers.a[:2], grid.numbers.s[:2]
    length = math.hypot(a_0, s_0)
    return (s_1 + a_0 * a_1 / (length + s_0)) / length


class FDPM(Sampler):
    r"""First-order sampler of forward values with a free lookahead: N steps cost N network calls.

    .. math::
        \hat x_{i+1} = \frac{a_{i+1}}{a_i} x_i - \frac{a_{i+1} s_i}{a_i} \sum_{j < q} w_j e_{i-j}, \qquad
        D = D(\hat x_{i+1}, t_{i+1}), \qquad x_{i+1} = c_i x_i + b_i D, \qquad
        e_{i+1} = \frac{\hat x_{i+1} - a_{i+1} D}{s_{i+1}}

    The lookahead reuses noise predictions of steps before (weights of :mod:`exponential_weights`, :math:`q = \min(i + 1, p)`). The
    network sees only lookaheads, at the times :math:`t_1 .. t_N`. The leading error is the negative of DDIM's, and the method is of
    order 1 for every p.

    Args:
        order: p, number of noise predictions in the lookahead. Above 1 it may diverge with few steps.
        final: ``state`` returns the state at the last grid point, ``data`` the last data prediction, which costs nothing.
        first_eps: the noise prediction of the start: ``noise`` takes the start itself, ``model`` spends one more call there, as a
            start from an image with noise needs.
        lower_order_final: make the last lookahead of order 1.

    Raises:
        ValueError: if the order is below 1 or an option is unknown.

    Source: Jiao et al. 2026 (arXiv 2512.24927).
    """

    def __init__(
        self,
        order: int = 1,
        final: Literal["state", "data"] = "state",
        first_eps: Literal["noise", "model"] = "noise",
        lower_order_final: bool = False,
    ) -> None:
        if order < 1:
            raise ValueError(f"the order of F-DPM must be at least 1, got {order}")
        if final not in ("state", "data"):
            raise ValueError(f"unknown final={final!r}: choose state or data")
        if first_eps not in ("noise", "model"):
            raise ValueError(f"unknown first_eps={first_eps!r}: choose noise or model")
        self.order, self.final, self.first_eps, self.lower_order_final = order, final, first_eps, lower_order_final

    def steps_for(self, nfe: int) -> int:
        return super().steps_for(nfe - (self.first_eps == "model"))

    def check(self, grid: Grid) -> None:
        if grid.s[-1] == 0:
            raise ValueError(
                "F-DPM evaluates the network at the last grid point, where sigma = 0: use sigma_min > 0, "
                "with final='data' for a sample without noise"
            )
        if self.first_eps == "model" and grid.a[0] == 0:
            raise ValueError("first_eps='model' needs signal at the start, where alpha = 0: use first_eps='noise'")
        if min(self.order, grid.steps) >= 2 and grid.steps <= FEW_STEPS:
            warnings.warn(
                f"F-DPM of order {self.order} may diverge with N = {grid.steps} steps, where it extrapolates far: take order=1",
                stacklevel=3,
            )

    def lookaheads(self, grid: Grid) -> list[tuple[float, list[float]]]:
        """Return A and W of the lookahead of every step; W goes with the noise predictions, the newest first."""
        own_noise = self.first_eps == "noise"
        oldest = int(grid.numbers.a[0] == 0)
        found = [(first_lookahead_scale(grid), list[float]())] if own_noise else []
        for i in range(len(found), grid.steps):
            order = 1 if self.lower_order_final and i == grid.steps - 1 else self.order
            found.append(noise_step(grid, i, i + 1, range(i, max(i - order, oldest - 1), -1)))
        return found

    def states(self, denoiser: DataPrediction, x: Tensor, grid: Grid) -> Iterator[tuple[Tensor, Tensor]]:
        t, a, s, _ = grid.numbers
        if self.first_eps == "noise":
            first, lengths = x, [math.hypot(a[0], s[0]), *s[1:]]
        else:
            first, lengths = noise_part(x, denoiser(x, t[0]), a[0]), s
        history = deque([first], maxlen=self.order)
        steps = [for_noise_parts(step, lengths, i) for i, step in enumerate(self.lookaheads(grid))]
        for i, ((scale, weights), (c, b)) in enumerate(zip(steps, data_coefficients(grid), strict=True), start=1):
            lookahead = combine(x, scale, history, weights)
            data = denoiser(lookahead, t[i])
            x = move(x, c, data, b)
            history.appendleft(noise_part(lookahead, data, a[i]))
            yield (data if self.final == "data" and i == grid.steps else x), data
