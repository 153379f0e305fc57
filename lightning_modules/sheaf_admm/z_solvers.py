r"""z-updates of Sheaf-ADMM: pull the agents' proposals towards agreement on the edges.

.. math::
    \text{soft: } z = \arg\min_z \tfrac{\gamma}{2} \lVert \delta z \rVert^2 + \tfrac{\rho}{2} \lVert z - v \rVert^2
        = \rho (\rho I + \gamma L)^{-1} v, \qquad \text{hard: } z = \Pi_{\ker \delta}\, v

Both are written through the correction :math:`w = v - z`, which solves :math:`(L + sI)\, w = L v` with the shift
:math:`s = \rho / \gamma` (soft) or a tiny :math:`s = \varepsilon` (hard).

``solver.bind(laplacian, rho, gamma)`` does what depends on these only, once per forward, and returns the map
``(v, u, z_previous) -> z``; ``solver(laplacian, v, u, z_previous, rho)`` does both. ``rho`` is a positive scalar tensor or
``[N, B, 1]``.

Shape suffixes: N agents, B batch, d vertex stalk.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from lightning_modules.sheaf_admm.layers import softplus_inverse

Mode = Literal["soft", "hard"]
Start = Literal["dual", "zero", "released"]
Update = Callable[[Tensor, Tensor, Tensor], Tensor]


class Laplacian(Protocol):
    """What the ADMM layer asks of a sheaf Laplacian."""

    num_nodes: int
    stalk_dim: int

    def delta(self, z_NBd: Tensor) -> Tensor: ...

    def matvec(self, z_NBd: Tensor) -> Tensor: ...

    def dense(self) -> Tensor: ...


class ZSolver(nn.Module, ABC):
    """Common arguments of the z-updates.

    Args:
        mode: ``"soft"`` penalises disagreement with weight ``gamma``, ``"hard"`` forbids it.
        gamma: weight γ >= 0 of the disagreement (soft only).

    Raises:
        ValueError: on an unknown mode or a negative γ.
    """

    def __init__(self, mode: Mode, gamma: float) -> None:
        super().__init__()
        if mode not in ("soft", "hard"):
            raise ValueError(f"mode must be 'soft' or 'hard', got {mode!r}")
        if gamma < 0:
            raise ValueError(f"gamma must not be negative, got {gamma}")
        self.mode: Mode = mode
        self.gamma = float(gamma)

    @abstractmethod
    def bind(self, laplacian: Laplacian, rho: Tensor, gamma: float | None = None) -> Update:
        """Prepare the step; ``gamma`` replaces the solver's own."""

    def forward(self, laplacian: Laplacian, v_NBd: Tensor, u_NBd: Tensor, z_NBd: Tensor, rho: Tensor) -> Tensor:
        return self.bind(laplacian, rho)(v_NBd, u_NBd, z_NBd)

    def _refuse_agent_penalty(self, rho: Tensor) -> None:
        """The hard step with a penalty per agent would be a weighted projection."""
        if self.mode == "hard" and rho.ndim == 3 and rho.shape[0] > 1:
            raise ValueError("mode 'hard' needs one rho for all agents of a batch element; use mode 'soft' for a rho per agent")


def _inner(a_NBd: Tensor, b_NBd: Tensor) -> Tensor:
    """Inner product over agents and stalk, one number per batch element, ``[1, B, 1]``."""
    return (a_NBd * b_NBd).sum(dim=(0, 2), keepdim=True)


def conjugate_gradient(
    matvec: Callable[[Tensor], Tensor], z_NBd: Tensor, residual_NBd: Tensor, floor_1B1: Tensor, steps: int
) -> Tensor:
    r"""Run CG on the correction ``w`` and return :math:`z = v - w`, one independent solve per batch element.

    .. math::
        \alpha = \frac{r^\top r}{p^\top A p}, \quad z \leftarrow z - \alpha p, \quad r \leftarrow r - \alpha A p, \quad
        p \leftarrow r + \frac{r^\top r}{r_\text{old}^\top r_\text{old}}\, p

    An element whose :math:`r^\top r` is at or below its floor is frozen: its denominators become infinite, so its steps and
    their gradients are exactly zero instead of 0/0.

    Args:
        matvec: product with the positive semidefinite matrix A.
        z_NBd: start ``v - w0``.
        residual_NBd: :math:`L v - A w_0`.
        floor_1B1: squared residual norm that counts as converged, without gradient.
        steps: number of steps T.
    """
    direction_NBd, squared = residual_NBd, _inner(residual_NBd, residual_NBd)
    for step in range(steps):
        product_NBd = matvec(direction_NBd)
        frozen = squared <= floor_1B1
        minus_length = -squared / _inner(direction_NBd, product_NBd).masked_fill(frozen, torch.inf)
        z_NBd = z_NBd + minus_length * direction_NBd
        if step + 1 < steps:
            residual_NBd = residual_NBd + minus_length * product_NBd
            previous, squared = squared, _inner(residual_NBd, residual_NBd)
            momentum = squared / previous.masked_fill(frozen, torch.inf)
            direction_NBd = residual_NBd + momentum * direction_NBd
    return z_NBd


class CGConsensus(ZSolver):
    r"""A fixed number of conjugate-gradient steps with gradients through every one of them.

    The solve is unfinished on purpose; T is part of the model. An element is frozen once :math:`\lVert r \rVert` falls to
    rounding level, :math:`16\,\epsilon_\text{machine} \lVert v \rVert` (restriction maps are of order one): further steps
    would amplify rounding errors in the kernel of δ by :math:`1/s`.

    Args:
        mode: ``"soft"`` or ``"hard"``.
        gamma: weight γ of the disagreement (soft only).
        steps: CG steps T.
        start: first correction w₀ of the hard mode. ``"dual"`` (default): the previous iteration's correction u, a true warm
            start. ``"zero"``: w₀ = 0. ``"released"``: ``v - z_previous``, which leaves the consensus part of z where it was for
            ever, so that ADMM does *not* solve the stated problem; kept to reproduce published numbers. Soft mode always starts
            at w₀ = 0, that is z = v.
        eps: shift ε of the hard mode.

    Raises:
        ValueError: if ``start`` is given in soft mode or unknown, ``steps`` is negative (or 0 in hard mode), or ``eps < 0``.

    Source: Sheaf-ADMM (arXiv 2605.31005), z-update by unrolled CG; Hestenes and Stiefel 1952.
    """

    def __init__(
        self, mode: Mode = "soft", gamma: float = 1.0, steps: int = 5, start: Start | None = None, eps: float = 1e-5
    ) -> None:
        super().__init__(mode, gamma)
        if mode == "soft" and start is not None:
            raise ValueError(f"start={start!r} belongs to mode 'hard'; mode 'soft' always starts at v")
        if start not in (None, "dual", "zero", "released"):
            raise ValueError(f"start must be 'dual', 'zero' or 'released', got {start!r}")
        if steps < 0 or (steps == 0 and mode == "hard"):
            raise ValueError(f"steps must be at least {int(mode == 'hard')} in mode {mode!r}, got {steps}")
        if eps < 0:
            raise ValueError(f"eps must not be negative, got {eps}")
        self.steps = steps
        self.start = start or ("dual" if mode == "hard" else "zero")
        self.eps = eps

    def bind(self, laplacian: Laplacian, rho: Tensor, gamma: float | None = None) -> Update:
        self._refuse_agent_penalty(rho)
        gamma = self.gamma if gamma is None else gamma
        if self.mode == "soft" and gamma == 0:
            return lambda v_NBd, u_NBd, z_NBd: v_NBd
        shift = rho / gamma if self.mode == "soft" else rho.new_full((), self.eps)

        def matvec(p_NBd: Tensor) -> Tensor:
            return laplacian.matvec(p_NBd) + shift * p_NBd

        def update(v_NBd: Tensor, u_NBd: Tensor, z_NBd: Tensor) -> Tensor:
            precision = torch.finfo(v_NBd.dtype)
            norm_1B1 = torch.linalg.vector_norm(v_NBd.detach(), dim=(0, 2), keepdim=True)
            floor_1B1 = (norm_1B1 * (16 * precision.eps)).square().clamp_min(precision.tiny / precision.eps)
            if self.start == "zero":
                return conjugate_gradient(matvec, v_NBd, laplacian.matvec(v_NBd), floor_1B1, self.steps)
            correction_NBd = u_NBd if self.start == "dual" else v_NBd - z_NBd
            first_NBd = v_NBd - correction_NBd
            residual_NBd = torch.addcmul(laplacian.matvec(first_NBd), correction_NBd, shift, value=-1)
            return conjugate_gradient(matvec, first_NBd, residual_NBd, floor_1B1, self.steps)

        return update


class GDConsensus(ZSolver):
    r"""Nesterov gradient descent with a learned step size, from z = v.

    .. math::
        m \leftarrow g + 0.9\, m, \qquad z \leftarrow z - \eta\, (g + 0.9\, m), \qquad
        g = \gamma L z + \rho (z - v) \text{ (soft) or } L z \text{ (hard)}

    Unlike CG, whose step lengths are inner products over all agents, this step is local: news travels one hop per step.

    Args:
        mode: ``"soft"`` or ``"hard"``.
        gamma: weight γ of the disagreement (soft only).
        steps: gradient steps T.
        step_size: η at the start of training, kept positive by a softplus.
        momentum: 0.9 above.

    Raises:
        ValueError: if ``step_size <= 0``, ``steps`` is negative (or 0 in hard mode), or momentum is outside [0, 1).

    Source: Sheaf-ADMM (arXiv 2605.31005), gradient-descent ablation.
    """

    def __init__(
        self, mode: Mode = "soft", gamma: float = 1.0, steps: int = 10, step_size: float = 0.01, momentum: float = 0.9
    ) -> None:
        super().__init__(mode, gamma)
        if steps < 0 or (steps == 0 and mode == "hard"):
            raise ValueError(f"steps must be at least {int(mode == 'hard')} in mode {mode!r}, got {steps}")
        if step_size <= 0:
            raise ValueError(f"step_size must be positive, got {step_size}")
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum must lie in [0, 1), got {momentum}")
        self.steps = steps
        self.momentum = momentum
        self.step_size_init = softplus_inverse(step_size)
        self.step_size_raw = nn.Parameter(torch.zeros(()))

    def bind(self, laplacian: Laplacian, rho: Tensor, gamma: float | None = None) -> Update:
        self._refuse_agent_penalty(rho)
        gamma = self.gamma if gamma is None else gamma
        step_size = functional.softplus(self.step_size_raw + self.step_size_init)

        def gradient(z_NBd: Tensor, v_NBd: Tensor) -> Tensor:
            if self.mode == "hard":
                return laplacian.matvec(z_NBd)
            return torch.add(rho * (z_NBd - v_NBd), laplacian.matvec(z_NBd), alpha=gamma)

        def update(v_NBd: Tensor, u_NBd: Tensor, z_NBd: Tensor) -> Tensor:
            z_NBd, trace_NBd = v_NBd, torch.zeros_like(v_NBd)
            for _ in range(self.steps):
                gradient_NBd = gradient(z_NBd, v_NBd)
                trace_NBd = torch.add(gradient_NBd, trace_NBd, alpha=self.momentum)
                step_NBd = torch.add(gradient_NBd, trace_NBd, alpha=self.momentum)
                z_NBd = torch.addcmul(z_NBd, step_size, step_NBd, value=-1)
            return z_NBd

        return update


class ExactConsensus(ZSolver):
    r"""The exact z-update by dense linear algebra, for tests and small graphs.

    Soft: a Cholesky factor of :math:`\rho I + \gamma L`. Hard: the projector :math:`I - L^+ L`. Either is computed once per
    forward and costs :math:`O((Nd)^3)`.

    Args:
        mode: ``"soft"`` or ``"hard"``.
        gamma: weight γ of the disagreement (soft only).
    """

    def __init__(self, mode: Mode = "soft", gamma: float = 1.0) -> None:
        super().__init__(mode, gamma)

    def bind(self, laplacian: Laplacian, rho: Tensor, gamma: float | None = None) -> Update:
        self._refuse_agent_penalty(rho)
        gamma = self.gamma if gamma is None else gamma
        L_BMM = laplacian.dense()
        if self.mode == "hard":
            projected_BMM = torch.linalg.pinv(L_BMM, hermitian=True) @ L_BMM
            return lambda v_NBd, u_NBd, z_NBd: v_NBd - _as_states(projected_BMM @ _as_vectors(v_NBd), v_NBd)
        rho_NBd = rho.expand(laplacian.num_nodes, rho.shape[1] if rho.ndim else 1, laplacian.stalk_dim)
        factor_BMM = torch.linalg.cholesky(gamma * L_BMM + _as_vectors(rho_NBd).squeeze(-1).diag_embed())
        return lambda v_NBd, u_NBd, z_NBd: _as_states(torch.cholesky_solve(_as_vectors(rho * v_NBd), factor_BMM), v_NBd)


def _as_vectors(v_NBd: Tensor) -> Tensor:
    """Stack the agents' states of each batch element, ``[B, N*d, 1]``."""
    return v_NBd.transpose(0, 1).flatten(1).unsqueeze(-1)


def _as_states(vectors: Tensor, like_NBd: Tensor) -> Tensor:
    """Undo :func:`_as_vectors`."""
    return vectors.view(like_NBd.shape[1], like_NBd.shape[0], -1).transpose(0, 1)
