r"""The Sheaf-ADMM layer: K unrolled iterations that coordinate the agents, differentiable from end to end.

.. math::
    x &\leftarrow \arg\min_x f(x) + \tfrac{\rho}{2} \lVert x - (z - u) \rVert^2 \\
    v &\leftarrow \alpha x + (1 - \alpha) z + u \\
    z &\leftarrow \arg\min_z \tfrac{\gamma}{2} \lVert \delta z \rVert^2 + \tfrac{\rho}{2} \lVert z - v \rVert^2
        \ \text{ (soft)} \quad\text{or}\quad \Pi_{\ker \delta} v \ \text{ (hard)} \\
    u &\leftarrow v - z

Shape suffixes: N agents, B batch, d vertex stalk, W loss window, K iterations.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from lightning_modules.sheaf_admm.interventions import Intervention, check_interventions
from lightning_modules.sheaf_admm.laplacian import SheafLaplacian
from lightning_modules.sheaf_admm.layers import softplus_inverse
from lightning_modules.sheaf_admm.x_solvers import Update as XUpdate
from lightning_modules.sheaf_admm.x_solvers import XSolver
from lightning_modules.sheaf_admm.z_solvers import Update as ZUpdate
from lightning_modules.sheaf_admm.z_solvers import ZSolver


@dataclass(frozen=True)
class StoppingRule:
    r"""Boyd's rule: stop when every batch element satisfies

    .. math::
        \lVert x - z \rVert \le \epsilon_a \sqrt{N d} + \epsilon_r \max(\lVert x \rVert, \lVert z \rVert), \qquad
        \rho \lVert z - z_\text{previous} \rVert \le \epsilon_a \sqrt{N d} + \epsilon_r\, \rho \lVert u \rVert .

    Source: Boyd et al. 2011, section 3.3.1.
    """

    absolute: float = 1e-4
    relative: float = 1e-3

    def holds(self, x_NBd: Tensor, z_NBd: Tensor, z_previous_NBd: Tensor, u_NBd: Tensor, rho: Tensor) -> bool:
        """Say whether the whole batch has converged (this waits for the device)."""
        slack = self.absolute * math.sqrt(x_NBd.shape[0] * x_NBd.shape[-1])
        size_B = torch.maximum(_norm_B(x_NBd), _norm_B(z_NBd))
        primal = _norm_B(x_NBd - z_NBd) <= slack + self.relative * size_B
        dual = _norm_B(rho * (z_NBd - z_previous_NBd)) <= slack + self.relative * _norm_B(rho * u_NBd)
        return bool((primal & dual).all())


@dataclass
class ADMMHistory:
    """What happened in each iteration, without gradients.

    Attributes:
        x, z, u: states, ``[K, N, B, d]``.
        primal: ``|x_hat - z|`` of each agent, ``[K, N, B]``.
        dual: ``rho |z - z_previous|`` of each agent, ``[K, N, B]``.
        disagreement: root mean square of δz over edges and edge stalk, ``[K, B]``.
    """

    x: Tensor
    z: Tensor
    u: Tensor
    primal: Tensor
    dual: Tensor
    disagreement: Tensor

    @property
    def log_ratio(self) -> Tensor:
        """Natural logarithm of primal over dual residual, ``[K, N, B]``; large where agents still argue."""
        tiny = torch.finfo(self.primal.dtype).tiny
        return self.primal.clamp_min(tiny).log() - self.dual.clamp_min(tiny).log()


@dataclass
class ADMMOutput:
    """Result of :class:`SheafADMM`.

    Attributes:
        x_window: the last W proposals, oldest first, ``[W, N, B, d]`` (``[1, N, B, d]`` for K = 0).
        x, z, u: final states, ``[N, B, d]``.
        iterations: iterations that were run.
        kept: proposal after each horizon asked for; after an early stop the last one stands for later horizons.
        history: the record, if asked for.
    """

    x_window: Tensor
    x: Tensor
    z: Tensor
    u: Tensor
    iterations: int
    kept: dict[int, Tensor] = field(default_factory=dict)
    history: ADMMHistory | None = None


class SheafADMM(nn.Module):
    r"""Coordinate agents by a fixed number of ADMM iterations on a cellular sheaf.

    The penalty is one learned scalar,
    :math:`\rho = \mathrm{softplus}(\rho_\text{raw} + \mathrm{softplus}^{-1}(\rho_\text{init}))`.
    The layer switches autocast off; states of half precision are widened.

    Args:
        z_solver: the z-update.
        rho_init: ρ at the start of training.
        alpha: over-relaxation, in (0, 2); 1 is none.
        z_init: start from ``"h"`` (x⁰ = z⁰ = h) or from ``"zeros"`` (z⁰ = 0); u⁰ = 0 in both.
        checkpoint_every: recompute this many iterations at a time in the backward pass (0: keep them all in memory).
        grad_window: back-propagate through the last so many iterations only (None: all).

    Raises:
        ValueError: on a value outside the ranges above.

    Source: Sheaf-ADMM (arXiv 2605.31005), section 3; Boyd et al. 2011, sections 3.1 and 3.4.3.
    """

    def __init__(
        self,
        z_solver: ZSolver,
        rho_init: float = 0.25,
        alpha: float = 1.0,
        z_init: Literal["h", "zeros"] = "h",
        checkpoint_every: int = 0,
        grad_window: int | None = None,
    ) -> None:
        super().__init__()
        if rho_init <= 0:
            raise ValueError(f"rho_init must be positive, got {rho_init}")
        if not 0 < alpha < 2:
            raise ValueError(f"alpha must lie between 0 and 2, got {alpha}")
        if z_init not in ("h", "zeros"):
            raise ValueError(f"z_init must be 'h' or 'zeros', got {z_init!r}")
        if checkpoint_every < 0:
            raise ValueError(f"checkpoint_every must not be negative, got {checkpoint_every}")
        if grad_window is not None and grad_window < 1:
            raise ValueError(f"grad_window must be at least 1 or None, got {grad_window}")
        self.z_solver = z_solver
        self.alpha = alpha
        self.z_init = z_init
        self.checkpoint_every = checkpoint_every
        self.grad_window = grad_window
        self.rho_offset = softplus_inverse(rho_init)
        self.rho_raw = nn.Parameter(torch.zeros(()))

    @property
    def rho(self) -> Tensor:
        """The learned penalty, a positive scalar."""
        return functional.softplus(self.rho_raw + self.rho_offset)

    def iteration(self, x_update: XUpdate, z_update: ZUpdate, z_NBd: Tensor, u_NBd: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Do one iteration with bound solvers and return ``(x, z, u)``."""
        x_NBd = x_update(z_NBd - u_NBd)
        return x_NBd, *self.agree(z_update, x_NBd, z_NBd, u_NBd)

    def agree(self, z_update: ZUpdate, x_NBd: Tensor, z_NBd: Tensor, u_NBd: Tensor) -> tuple[Tensor, Tensor]:
        """Do the second half of an iteration, from the proposals on, and return ``(z, u)``."""
        relaxed_NBd = x_NBd if self.alpha == 1 else torch.lerp(z_NBd, x_NBd, self.alpha)
        v_NBd = relaxed_NBd + u_NBd
        z_NBd = z_update(v_NBd, u_NBd, z_NBd)
        return z_NBd, v_NBd - z_NBd

    def forward(
        self,
        x_solver: XSolver,
        laplacian: SheafLaplacian,
        z0_NBd: Tensor,
        steps: int,
        window: int = 1,
        interventions: Sequence[Intervention] = (),
        record: bool = False,
        stop: StoppingRule | None = None,
        keep: Sequence[int] = (),
        rho: Tensor | None = None,
    ) -> ADMMOutput:
        """Run the iterations.

        Args:
            x_solver: the agents' objectives.
            laplacian: the sheaf.
            z0_NBd: start h; K = 0 returns it as the proposal.
            steps: iterations K.
            window: number W <= K of last proposals to return.
            interventions: changes to the run, see :mod:`interventions`.
            record: keep a history.
            stop: stop early, in evaluation mode only and never before W iterations.
            keep: horizons ``0 <= k <= K`` whose proposals are wanted too.
            rho: penalty per agent and batch element, ``[N, B]`` (or scalar), instead of the learned one.

        Raises:
            ValueError: if these do not fit together.
        """
        self._check(laplacian, z0_NBd, steps, window, stop, keep, rho)
        check_interventions(interventions, laplacian.num_nodes, steps)
        with torch.autocast(z0_NBd.device.type, enabled=False):
            start_NBd = z0_NBd.float() if z0_NBd.dtype in (torch.float16, torch.bfloat16) else z0_NBd
            penalty = self.rho if rho is None else rho.to(start_NBd).unsqueeze(-1) if rho.ndim else rho.to(start_NBd)
            start_NBd = laplacian.arranged(start_NBd)
            run = _Run(self, x_solver, laplacian, penalty, interventions, record)
            return self._loop(run, start_NBd, steps, window, stop, keep)

    def first_nonfinite(self, x_solver: XSolver, laplacian: SheafLaplacian, z0_NBd: Tensor, steps: int) -> str | None:
        """Run again with a record and say where a state first became infinite or NaN, or None if none did."""
        with torch.no_grad():
            if not z0_NBd.isfinite().all():
                return f"the start z0 is not finite ({_place(z0_NBd)})"
            if not self.rho.isfinite():
                return "the penalty rho is not finite"
            history = self(x_solver, laplacian, z0_NBd, steps, min(1, steps), record=True).history
        for k in range(steps):
            for name in ("x", "z", "u"):
                state_NBd = getattr(history, name)[k]
                if not state_NBd.isfinite().all():
                    return f"{name} is first not finite at iteration {k + 1} of {steps} ({_place(state_NBd)})"
        return None

    def _loop(
        self, run: _Run, start_NBd: Tensor, steps: int, window: int, stop: StoppingRule | None, keep: Sequence[int]
    ) -> ADMMOutput:
        """Iterate in chunks: one iteration each, or ``checkpoint_every`` where the backward pass recomputes."""
        x_NBd, u_NBd = start_NBd, torch.zeros_like(start_NBd)
        z_NBd = start_NBd if self.z_init == "h" else torch.zeros_like(start_NBd)
        newest, kept = deque([x_NBd], maxlen=max(window, 1)), {0: x_NBd}
        first_grad = steps - (self.grad_window or steps)
        done = 0
        while done < steps:
            with_grad = torch.is_grad_enabled() and done >= first_grad
            recompute = with_grad and self.checkpoint_every > 0 and stop is None
            size = min(self.checkpoint_every, steps - done) if recompute else 1
            z_previous_NBd = z_NBd
            with torch.set_grad_enabled(with_grad):
                if recompute:
                    z_NBd, u_NBd, *proposals = checkpoint(
                        run.chunk, done, size, z_NBd, u_NBd, use_reentrant=False, preserve_rng_state=False
                    )
                else:
                    z_NBd, u_NBd, *proposals = run.chunk(done, size, z_NBd, u_NBd)
            for x_NBd in proposals:
                done += 1
                newest.append(x_NBd)
                if done in keep:
                    kept[done] = x_NBd
            if stop is not None and done >= window and stop.holds(x_NBd, z_NBd, z_previous_NBd, u_NBd, run.rho):
                break
        kept = {k: kept.get(k, x_NBd) for k in keep}
        return ADMMOutput(torch.stack(tuple(newest)), x_NBd, z_NBd, u_NBd, done, kept, run.history())

    def _check(
        self,
        laplacian: SheafLaplacian,
        z0_NBd: Tensor,
        steps: int,
        window: int,
        stop: StoppingRule | None,
        keep: Sequence[int],
        rho: Tensor | None,
    ) -> None:
        """Refuse arguments of :meth:`forward` that do not fit together."""
        if z0_NBd.ndim != 3 or (z0_NBd.shape[0], z0_NBd.shape[2]) != (laplacian.num_nodes, laplacian.stalk_dim):
            raise ValueError(
                f"z0 must have shape [N, B, d] with N={laplacian.num_nodes} and d={laplacian.stalk_dim}, got {tuple(z0_NBd.shape)}"
            )
        if steps < 0 or window < 0 or (steps > 0 and not 1 <= window <= steps):
            raise ValueError(f"the loss window W must satisfy 1 <= W <= K, got W={window}, K={steps}")
        if self.grad_window is not None and 0 < self.grad_window < window:
            raise ValueError(f"grad_window={self.grad_window} must cover the loss window W={window}")
        if any(not 0 <= k <= steps for k in keep):
            raise ValueError(f"keep must hold horizons between 0 and K={steps}, got {list(keep)}")
        if stop is not None and self.training:
            raise ValueError("stop is for evaluation: call eval() first")
        if rho is not None and rho.ndim and rho.shape != z0_NBd.shape[:2]:
            raise ValueError(f"rho must be a scalar or [N, B] = {list(z0_NBd.shape[:2])}, got {list(rho.shape)}")
        if rho is not None and not torch.compiler.is_compiling() and (rho <= 0).any():
            raise ValueError(f"rho must be positive, its smallest entry is {rho.min().item():.3g}")


class _Run:
    """One forward pass: the bound solvers, the interventions and the record."""

    def __init__(
        self,
        admm: SheafADMM,
        x_solver: XSolver,
        laplacian: SheafLaplacian,
        rho: Tensor,
        interventions: Sequence[Intervention],
        record: bool,
    ) -> None:
        self.admm, self.x_solver, self.laplacian, self.rho, self.interventions = admm, x_solver, laplacian, rho, interventions
        self.records: list[tuple[Tensor, ...]] | None = [] if record else None
        self.bound = x_solver.bind(rho), admm.z_solver.bind(laplacian, rho)

    def chunk(self, done: int, size: int, z_NBd: Tensor, u_NBd: Tensor) -> tuple[Tensor, ...]:
        """Do the iterations ``done + 1 .. done + size`` and return ``(z, u)`` and the proposals of all of them."""
        watched = bool(self.interventions) or self.records is not None
        proposals = []
        for k in range(done + 1, done + size + 1):
            if watched:
                x_NBd, z_NBd, u_NBd = self._watched_iteration(k, z_NBd, u_NBd)
            else:
                x_NBd, z_NBd, u_NBd = self.admm.iteration(*self.bound, z_NBd, u_NBd)
            proposals.append(x_NBd)
        return z_NBd, u_NBd, *proposals

    def _watched_iteration(self, k: int, z_NBd: Tensor, u_NBd: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One iteration with hooks and record."""
        laplacian, rho, gamma = self.laplacian, self.rho, self.admm.z_solver.gamma
        x_update, z_update = self.bound
        for hook in self.interventions:
            laplacian, rho, gamma = hook.on_laplacian(k, laplacian), hook.on_rho(k, rho), hook.on_gamma(k, gamma)
        if self.interventions:
            x_update, z_update = self.x_solver.bind(rho), self.admm.z_solver.bind(laplacian, rho, gamma)
        x_NBd = x_update(z_NBd - u_NBd)
        for hook in self.interventions:
            x_NBd = hook.on_x(k, x_NBd)
        z_next_NBd, u_next_NBd = self.admm.agree(z_update, x_NBd, z_NBd, u_NBd)
        for hook in self.interventions:
            z_next_NBd, u_next_NBd = hook.on_z(k, z_next_NBd), hook.on_u(k, u_next_NBd)
        self._note(laplacian, rho, x_NBd, z_NBd, z_next_NBd, u_next_NBd)
        return x_NBd, z_next_NBd, u_next_NBd

    @torch.no_grad()
    def _note(
        self, laplacian: SheafLaplacian, rho: Tensor, x_NBd: Tensor, z_NBd: Tensor, z_next_NBd: Tensor, u_NBd: Tensor
    ) -> None:
        """Add one iteration to the record."""
        if self.records is None:
            return
        relaxed_NBd = torch.lerp(z_NBd, x_NBd, self.admm.alpha)
        primal_NB = (relaxed_NBd - z_next_NBd).norm(dim=-1)
        dual_NB = (rho * (z_next_NBd - z_NBd)).norm(dim=-1)
        disagreement_B = laplacian.delta(z_next_NBd).square().mean(dim=(0, 2)).sqrt()
        states = tuple(state.detach() for state in (x_NBd, z_next_NBd, u_NBd))
        self.records.append((*states, primal_NB, dual_NB, disagreement_B))

    def history(self) -> ADMMHistory | None:
        """Stack the record over iterations."""
        return ADMMHistory(*map(torch.stack, zip(*self.records, strict=True))) if self.records else None


def _norm_B(state_NBd: Tensor) -> Tensor:
    """Euclidean norm over agents and stalk."""
    return torch.linalg.vector_norm(state_NBd, dim=(0, 2))


def _place(state_NBd: Tensor) -> str:
    """Name the first bad entry of a state."""
    agent, element, _ = (~state_NBd.isfinite()).nonzero()[0].tolist()
    return f"agent {agent}, batch element {element}"
