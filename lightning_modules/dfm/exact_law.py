r"""The law of a sampler's output, without sampling (plain torch, float64).

All :math:`V^D` states are enumerated. Given its state a sampler moves the tokens independently, so a step is
:math:`P'(y) = \sum_x P(x) \prod_i k^i(y^i \mid x)`.

Legend: n states, D tokens, V ids, R rows (a state, or a state and what happened to it), M nodes.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_modules.dfm.path import DiscretePath
from lightning_modules.dfm.posterior import check_probabilities
from lightning_modules.dfm.solvers.base import checked_final
from lightning_modules.dfm.solvers.chains import device_of, time_dtype
from lightning_modules.dfm.solvers.registry import get_discrete_solver
from lightning_modules.dfm.solvers.tau_leaping import most_jumps
from lightning_modules.dfm.solvers.time_grid import Step, TimeGrid
from lightning_modules.dfm.sources import Source

MOST_STATES = 20_000
LARGEST_CHUNK = 2**18
SHORTEST_TRANSFORM = 128
REFERENCE_STEP = 0.05


def tv(a: Tensor, b: Tensor) -> float:
    r"""Return the total variation :math:`\tfrac12 \sum_x |a(x) - b(x)|` between two laws."""
    return 0.5 * (a.flatten() - b.flatten()).abs().sum().item()


def kl(a: Tensor, b: Tensor) -> float:
    r"""Return :math:`\sum_x a(x) \log (a(x) / b(x))` in nats; ∞ where a has mass and b has none."""
    return (torch.xlogy(a, a) - torch.xlogy(a, b)).sum().item()


class ExactLaw:
    """Laws of all samplers for one posterior.

    Args:
        oracle: ``oracle(x=, t=)`` returns probabilities ``[n, D, V]``: an exact posterior, or a trained network's.
        source: where the path starts.
        path: the path whose posterior it is.
        length: D; None takes ``oracle.length``.

    Raises:
        ValueError: if there are more than 20 000 states, or the length is not known.
    """

    def __init__(self, oracle: Callable[..., Tensor], source: Source, path: DiscretePath, length: int | None = None) -> None:
        tokens = getattr(oracle, "length", None) if length is None else length
        if tokens is None:
            raise ValueError("ExactLaw needs length, the number of tokens: this oracle does not tell it")
        self.oracle, self.source, self.path, self.length = oracle, source, path, int(tokens)
        size = source.vocabulary_size
        count = size**self.length
        if count > MOST_STATES:
            kernel = count * self.length * size * 8 / 2**30
            raise ValueError(
                f"ExactLaw would enumerate {size}^{self.length} = {count:.3g} states, with {kernel:.3g} GiB for each kernel and "
                f"{count:.1e}^2 products a step; it stops at {MOST_STATES} states: use fewer tokens or ids"
            )
        self.states = torch.cartesian_prod(*[torch.arange(size)] * self.length).view(-1, self.length)
        self._time_dtype, self._device = time_dtype(oracle), device_of(oracle)
        self._strides = size ** torch.arange(self.length - 1, -1, -1)

    def initial(self) -> Tensor:
        """Return the law of the source, ``[n]``."""
        if self.source.mask_id is None:
            return torch.full((len(self.states),), 1 / len(self.states), dtype=torch.float64)
        return self.source.is_masked(self.states).all(dim=1).double()

    def propagate(self, solver_name: str, grid: TimeGrid, nodes: int = 8, **options: Any) -> Tensor:
        """Return the law of the states at the end of a grid, before the finish, ``[n]`` in the order of ``states``.

        Args:
            solver_name: name of a solver; ``uniformization`` and ``first_hitting`` give the law that exact simulation has.
            grid: times, see :func:`~lightning_modules.dfm.solvers.time_grid.make_time_grid`.
            nodes: Gauss-Legendre nodes of a step's integral over the time of the renewal (location correction).
            options: options of the solver.

        Raises:
            ValueError: if the grid ends at t = 1, or the solver or an option is not known.
        """
        if grid.ends_at_one:
            raise ValueError("ExactLaw needs a grid that ends before t = 1: take grid.without_last_step() and finish")
        solver = get_discrete_solver(
            solver_name,
            model=self.oracle,
            path=self.path,
            vocabulary_size=self.source.vocabulary_size,
            source=self.source,
            **options,
        )
        law = self.initial()
        steps = grid.steps()
        for step in steps:
            law = self._step(solver_name, solver, law, step, len(steps), nodes)
        return law

    def finish(self, law: Tensor, t: float, final: str = "auto") -> Tensor:
        """Return the law after the finish: ``fill``, ``posterior``, ``state`` or ``auto``, as solvers have it."""
        final = checked_final(final, self.source.mask_id)
        if final == "state":
            return law
        p = self.posterior(self.states, t)
        if final == "fill":
            p = torch.where(self.source.is_masked(self.states).unsqueeze(-1), p, self._at(self.states))
        return self._push(law, p)

    def posterior(self, x: Tensor, t: float) -> Tensor:
        """Return the oracle's probabilities of states ``[R, D]`` at one time, float64 ``[R, D, V]``."""
        with torch.no_grad():
            p = self.oracle(x=x.to(self._device), t=torch.full((len(x),), t, dtype=self._time_dtype, device=self._device)).cpu()
        check_probabilities(p, x, self.source.mask_id)
        return p.double()

    def _step(self, name: str, solver: Any, law: Tensor, step: Step, num_steps: int, nodes: int) -> Tensor:
        x, euler_exposure = self.states, step.length * step.hazard
        if name == "lc":
            return self._location_corrected(law, step, solver.jumps_before_renewal(self.length, num_steps), nodes)
        if name in ("theta_rk2", "theta_trap"):
            return self._theta(law, step, solver)
        if name in ("uniformization", "first_hitting"):
            return self._exact(law, step)
        p = self.posterior(x, step.start)
        if name == "tau_leaping":
            kernel = self._ordinal(x, p, euler_exposure) if solver.mode == "ordinal" else self._single_jump(x, p, euler_exposure)
        else:
            exposure = euler_exposure if name == "euler" else step.log_ratio
            kernel = self._jumps(x, p, exposure) if solver.rate == "marginal" else self._to_data(x, p, exposure)
        return self._push(law, kernel)

    def _location_corrected(self, law: Tensor, step: Step, j: int, nodes: int) -> Tensor:
        r"""Sum over which tokens jump: fewer than j within R, or j - 1 before the j-th at r, and then a time-corrected step."""
        x = self.states
        rate = self._away(x, self.posterior(x, step.start))

        def apart(duration: float) -> tuple[Tensor, Tensor]:
            jumps = self._jumps(x, rate, duration)
            stays = self._at(x) * jumps
            return stays, jumps - stays

        tokens = range(self.length)
        stays, jumps = apart(step.log_ratio)
        end = torch.zeros_like(law)
        for count in range(min(j, self.length + 1)):
            for moved in itertools.combinations(tokens, count):
                end += self._push(law, self._mixed(stays, jumps, moved))
        if j > self.length:
            return end
        points, weights = np.polynomial.legendre.leggauss(nodes)
        for point, weight in zip(points.tolist(), weights.tolist(), strict=True):
            elapsed = step.log_ratio * (1 + point) / 2
            stays, jumps = apart(elapsed)
            survival = stays.sum(dim=-1, keepdim=True)
            renewed = torch.zeros_like(law)
            for last in tokens:
                for earlier in itertools.combinations([token for token in tokens if token != last], j - 1):
                    kernel = self._mixed(stays, jumps, earlier)
                    kernel[:, last] = (rate * survival)[:, last]
                    renewed += self._push(law, kernel)
            t = self.path.scheduler.kappa_inverse(-math.expm1(step.log_survival - elapsed)).item()
            rest = self._jumps(x, self.posterior(x, t), step.log_ratio - elapsed)
            end += step.log_ratio * weight / 2 * self._push(renewed, rest)
        return end

    def _theta(self, law: Tensor, step: Step, solver: Any) -> Tensor:
        """Sum over the state in between and, given it, over the end."""
        middle = step.start + solver.theta * step.length
        u = step.hazard * self._away(self.states, self.posterior(self.states, step.start))
        u_middle = solver.hazard_at(middle) * self._away(self.states, self.posterior(self.states, middle))
        kernel = self._jumps(self.states, u, solver.theta * step.length)
        starts = law.nonzero().squeeze(-1)
        end = torch.zeros_like(law)
        for start in starts.split(max(1, LARGEST_CHUNK // (len(law) * self.source.vocabulary_size))):
            between = self._joint(kernel[start])
            row, arrived = between.nonzero(as_tuple=True)
            begun = start[row]
            origin, rates, duration = solver.second_half(
                self.states[begun], self.states[arrived], u[begun], u_middle[arrived], step.length
            )
            end += self._push(law[begun] * between[row, arrived], self._jumps(origin, rates, duration))
        return end

    def _exact(self, law: Tensor, step: Step) -> Tensor:
        """Integrate Kolmogorov's forward equation in log-ratio time by Runge-Kutta steps of order 4."""
        count = math.ceil(step.log_ratio / REFERENCE_STEP)
        length = step.log_ratio / count

        def rates(elapsed: float) -> Tensor:
            t = self.path.scheduler.kappa_inverse(-math.expm1(step.log_survival - elapsed)).item()
            return self._away(self.states, self.posterior(self.states, t))

        after = rates(0.0)
        for k in range(count):
            before, between, after = after, rates((k + 0.5) * length), rates((k + 1) * length)
            first = self._flow(law, before)
            second = self._flow(law + length / 2 * first, between)
            third = self._flow(law + length / 2 * second, between)
            fourth = self._flow(law + length * third, after)
            law = law + length / 6 * (first + 2 * second + 2 * third + fourth)
        return law

    def _flow(self, law: Tensor, rate: Tensor) -> Tensor:
        flow = -law * rate.sum(dim=(1, 2))
        for token in range(self.length):
            goal = (self.states * self._strides).sum(dim=1, keepdim=True) + (
                torch.arange(self.source.vocabulary_size) - self.states[:, token, None]
            ) * self._strides[token]
            flow.index_add_(0, goal.flatten(), (law.unsqueeze(-1) * rate[:, token]).flatten())
        return flow

    def _push(self, weight_R: Tensor, kernel_RDV: Tensor) -> Tensor:
        r"""Return :math:`\sum_r w_r \prod_i k_r^i(y^i)` for every state y, ``[n]``."""
        half = self.length // 2
        width = self.source.vocabulary_size ** (self.length - half)
        law = torch.zeros(self.source.vocabulary_size**half, width, dtype=torch.float64)
        rows = max(1, LARGEST_CHUNK // width)
        for weight, kernel in zip(weight_R.split(rows), kernel_RDV.split(rows), strict=True):
            law += (weight.unsqueeze(-1) * self._joint(kernel[:, :half])).T @ self._joint(kernel[:, half:])
        return law.flatten()

    def _joint(self, kernel_RDV: Tensor) -> Tensor:
        """Return the product of the kernels of some tokens for all their values, ``[R, V ** tokens]``."""
        joint = torch.ones(len(kernel_RDV), 1, dtype=torch.float64)
        for token in range(kernel_RDV.shape[1]):
            joint = (joint.unsqueeze(-1) * kernel_RDV[:, token].unsqueeze(1)).flatten(1)
        return joint

    def _at(self, x_RD: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(x_RD, self.source.vocabulary_size).double()

    def _away(self, x_RD: Tensor, p_RDV: Tensor) -> Tensor:
        return p_RDV.scatter(-1, x_RD.unsqueeze(-1), 0)

    def _mixed(self, stays: Tensor, jumps: Tensor, moved: tuple[int, ...]) -> Tensor:
        moves = torch.tensor([token in moved for token in range(self.length)]).view(-1, 1)
        return torch.where(moves, jumps, stays)

    def _with_rest(self, x_RD: Tensor, kernel_RDV: Tensor) -> Tensor:
        """Add what is missing to 1 at the state itself."""
        return kernel_RDV.scatter_add(-1, x_RD.unsqueeze(-1), 1 - kernel_RDV.sum(dim=-1, keepdim=True))

    def _jumps(self, x_RD: Tensor, rate_RDV: Tensor, exposure: float) -> Tensor:
        rate = self._away(x_RD, rate_RDV)
        total = rate.sum(dim=-1, keepdim=True)
        share = torch.where(total > 0, -torch.expm1(-exposure * total) / total, 0.0)
        return rate.mul_(share).scatter_(-1, x_RD.unsqueeze(-1), torch.exp(-exposure * total))

    def _to_data(self, x_RD: Tensor, p_RDV: Tensor, exposure: float) -> Tensor:
        return self._with_rest(x_RD, -math.expm1(-exposure) * self._away(x_RD, p_RDV))

    def _single_jump(self, x_RD: Tensor, p_RDV: Tensor, exposure: float) -> Tensor:
        rate = exposure * self._away(x_RD, p_RDV)
        return self._with_rest(x_RD, rate * torch.exp(-rate.sum(dim=-1, keepdim=True)))

    def _ordinal(self, x_RD: Tensor, p_RDV: Tensor, exposure: float) -> Tensor:
        """Return the kernel of a sum of Poisson many differences, by Fourier transform."""
        size = self.source.vocabulary_size
        rate = exposure * self._away(x_RD, p_RDV)
        length = max(SHORTEST_TRANSFORM, 2 ** math.ceil(math.log2((size - 1) * (most_jumps(exposure) + 1) + 1)))
        difference = (torch.arange(size) - x_RD.unsqueeze(-1)) % length
        by_difference = torch.zeros(*x_RD.shape, length, dtype=torch.float64).scatter(-1, difference, rate)
        characteristic = torch.exp(torch.fft.fft(by_difference) - by_difference.sum(dim=-1, keepdim=True))
        return self._with_rest(x_RD, torch.fft.ifft(characteristic).real.gather(-1, difference))
