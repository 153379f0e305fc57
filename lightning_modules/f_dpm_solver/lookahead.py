"""F-DPM one network output at a time, for a loop that calls the network itself, such as a pipeline of diffusers (plain torch)."""

import math
from collections import deque

import torch
from torch import Tensor

from lightning_modules.f_dpm_solver.exponential_weights import combine, noise_prediction
from lightning_modules.f_dpm_solver.f_dpm import FDPM, first_lookahead_scale
from lightning_modules.f_dpm_solver.grids import Grid
from lightning_modules.f_dpm_solver.sampler import data_coefficients


class Lookahead:
    r"""The state of F-DPM behind a loop that carries only the guess :math:`\hat x` of the next state.

    The loop calls its network on what it carries, and F-DPM wants the network at the guess of the next state: so the guess travels
    and the state x stays here. What the network made of :math:`\hat x_n` gives

    .. math::
        x_n = c_{n-1} x_{n-1} + b_{n-1} D_n, \qquad \hat x_{n+1} = A_n x_n + \sum_j W_{nj} e_{n-j}.

    A loop from pure noise :math:`x_0` begins with :math:`\hat x_1 = k_0 x_0`, a mere rescaling, from which :meth:`start` recovers
    :math:`x_0`. A loop that begins at a later point has a real state there, :meth:`start_at`: its first output only becomes the
    history, and no step is done, as with ``first_eps="model"``.

    Args:
        solver: the sampler, with its options.
        grid: points 0 .. N.

    Attributes:
        state: x, at the point :attr:`point`; the next call of :meth:`advance` changes it in place.
        point: number of the grid point of the state.

    Raises:
        ValueError: if the solver cannot follow the grid.

    Source: ours; the trick that lets Jiao et al. 2026 (arXiv 2512.24927) run in an ordinary pipeline.
    """

    state: Tensor

    def __init__(self, solver: FDPM, grid: Grid) -> None:
        solver.check(grid)
        self.solver, self.grid = solver, grid
        self.signal, self.noise = grid.a.tolist(), grid.s.tolist()
        self.moves = data_coefficients(grid)
        self.first_scale = first_lookahead_scale(grid)
        self.noise_length = math.hypot(self.signal[0], self.noise[0])

    def start(self, lookahead: Tensor) -> None:
        """Begin at point 0 from the first lookahead, which is noise rescaled."""
        self.state, self.point, self._waits = lookahead / self.first_scale, 0, False
        self.predictors = self.solver.lookaheads(self.grid)
        self._begin_history()
        self._history.append(self.state / self.noise_length)

    def start_at(self, point: int, state: Tensor) -> None:
        """Begin at a later point from a state there, whose network output comes next."""
        self.state, self.point, self._waits = state.clone(), point, True
        rest = Grid(self.grid.t[point:], self.grid.a[point:], self.grid.s[point:]) if point < self.grid.steps else None
        solver = FDPM(self.solver.order, first_eps="model", lower_order_final=self.solver.lower_order_final)
        later = solver.lookaheads(rest) if rest else []
        self.predictors = [(math.nan, list[float]())] * point + later
        self._begin_history()

    def advance(self, lookahead: Tensor, data: Tensor, noise: Tensor | None = None) -> Tensor:
        """Take what the network made of the lookahead and return the next one, or the sample after the last step.

        Args:
            lookahead: what the network saw, ``[B, ...]``.
            data: its data prediction D there.
            noise: its noise prediction e there; None: computed from D where it is needed.

        Raises:
            RuntimeError: after the last step, if a data prediction held NaN or Inf.
        """
        self._sums.append((data.detach() if data.requires_grad else data).sum())
        if self._waits:
            self._waits = False
        else:
            c, b = self.moves[self.point]
            self.state.mul_(c).add_(data, alpha=b)
            self.point += 1
        n = self.point
        if n == self.grid.steps:
            self._refuse_non_finite()
            return data if self.solver.final == "data" else self.state
        self._history.appendleft(noise_prediction(lookahead, data, self.signal[n], self.noise[n]) if noise is None else noise)
        return combine(self.state, self.predictors[n][0], self._history, self.predictors[n][1])

    def _begin_history(self) -> None:
        self._history: deque[Tensor] = deque(maxlen=self.solver.order)
        self._sums: list[Tensor] = []

    def _refuse_non_finite(self) -> None:
        """Raise if a data prediction held NaN or Inf; waits for the device once."""
        finite = torch.stack(self._sums).isfinite()
        if not finite.all():
            call = int(finite.int().argmin())
            point = self.point - len(self._sums) + 1 + call
            ratio = self.noise[point] / self.signal[point]
            raise RuntimeError(
                f"the network returned NaN or Inf at step index {point - 1} (sigma = {ratio:.6g}); "
                "check its weights, its precision and its input scale"
            )
