"""x-updates of Sheaf-ADMM: every agent minimises its own convex objective plus a pull towards the consensus.

A solver holds one batch's coefficients. ``solver.bind(rho)`` does the work that depends on the penalty only, once per
forward, and returns the map ``v -> x`` that every iteration calls; ``solver(v, rho)`` does both. Here ``rho`` is a positive
scalar tensor or ``[N, B, 1]``.

Shape suffixes: N agents, B batch, d vertex stalk, m equality constraints.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

Update = Callable[[Tensor], Tensor]


def _refuse(bad: Tensor, message: str, value: Tensor) -> None:
    """Raise when any entry of ``bad`` is true."""
    if bad.any():
        raise ValueError(f"{message}, the smallest value given is {value.min().item():.3g}")


def _full_precision(tensor: Tensor) -> Tensor:
    """Widen half precision, which no factorisation accepts."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


class XSolver(ABC):
    """An agent objective whose proximal step has a closed form."""

    validate_args: bool

    @abstractmethod
    def bind(self, rho: Tensor) -> Update:
        """Prepare the step for one penalty and return ``v -> argmin f(x) + rho/2 |x - v|^2``."""

    def __call__(self, v_NBd: Tensor, rho: Tensor) -> Tensor:
        return self.bind(rho)(v_NBd)

    def _checks(self) -> bool:
        """Say whether values are to be checked; never while compiling."""
        return self.validate_args and not torch.compiler.is_compiling()

    def _factor(self, matrix: Tensor, what: str) -> Tensor:
        """Cholesky factor of a matrix that must be positive definite."""
        factor, info = torch.linalg.cholesky_ex(matrix)
        if self._checks() and info.any():
            raise ValueError(f"{type(self).__name__}: {what}")
        return factor


class DiagonalProx(XSolver):
    r"""Closed-form step of a separable objective.

    .. math::
        f(x) = \tfrac12 x^\top \mathrm{diag}(Q)\, x + q^\top x + \lambda \lVert x \rVert_1
            + \tfrac{\lambda_2}{2} \lVert x \rVert^2, \qquad l \le x \le h

        x = \mathrm{clip}\bigl(\mathrm{sign}(t)\max(|t| - \lambda / a, 0),\, l,\, h\bigr),
        \quad a = Q + \lambda_2 + \rho, \quad t = (\rho v - q) / a

    Every coordinate is a strictly convex problem of its own, so clipping the free minimiser is exact for any box. With a
    lower bound ``l >= 0`` the absolute value is linear on the box and costs nothing per iteration.

    Args:
        Q_NBd: positive curvature (any shape that broadcasts to ``[N, B, d]``).
        q_NBd: linear term.
        l1: weight λ >= 0 of the absolute value, a number or a tensor.
        l2: weight λ₂ >= 0 of the square, a number or a tensor.
        low, high: box, numbers or tensors.
        validate_args: check the values (this waits for the device); skipped under ``torch.compile``.

    Raises:
        ValueError: if ``Q <= 0``, ``l1 < 0``, ``l2 < 0`` or ``low > high`` anywhere.

    Source: Sheaf-ADMM (arXiv 2605.31005), x-update of the diagonal objective; Boyd et al. 2011, section 4.4.3.
    """

    def __init__(
        self,
        Q_NBd: Tensor,
        q_NBd: Tensor,
        l1: float | Tensor = 0.0,
        l2: float | Tensor = 0.0,
        low: float | Tensor = -torch.inf,
        high: float | Tensor = torch.inf,
        validate_args: bool = True,
    ) -> None:
        self.Q_NBd, self.q_NBd, self.l1, self.l2 = Q_NBd, q_NBd, l1, l2
        self.low, self.high, self.validate_args = low, high, validate_args
        if self._checks():
            _refuse(Q_NBd <= 0, "DiagonalProx needs Q > 0", Q_NBd)
            for name, weight in (("l1", l1), ("l2", l2)):
                _refuse(torch.as_tensor(weight) < 0, f"DiagonalProx needs {name} >= 0", torch.as_tensor(weight))
            width = torch.as_tensor(high) - torch.as_tensor(low)
            _refuse(width < 0, "DiagonalProx needs low <= high: high - low must not be negative", width)

    def bind(self, rho: Tensor) -> Update:
        inverse = (self.Q_NBd + self.l2 + rho).reciprocal()
        slope, threshold = rho * inverse, None
        if isinstance(self.l1, Tensor) or self.l1 > 0:
            threshold = self.l1 * inverse
        offset = -self.q_NBd * inverse
        if threshold is not None and not isinstance(self.low, Tensor) and self.low >= 0:
            offset, threshold = offset - threshold, None

        def update(v_NBd: Tensor) -> Tensor:
            x_NBd = torch.addcmul(offset, slope, v_NBd)
            if threshold is not None:
                x_NBd = x_NBd - torch.clamp(x_NBd, -threshold, threshold)
            return self._clip(x_NBd)

        return update

    def _clip(self, x_NBd: Tensor) -> Tensor:
        """Project on the box, with the fewest operations that the bounds allow."""
        if isinstance(self.low, Tensor):
            x_NBd = torch.maximum(x_NBd, self.low)
        elif self.low == 0:
            x_NBd = torch.relu(x_NBd)
        elif self.low > -torch.inf:
            x_NBd = x_NBd.clamp_min(self.low)
        if isinstance(self.high, Tensor):
            return torch.minimum(x_NBd, self.high)
        return x_NBd.clamp_max(self.high) if self.high < torch.inf else x_NBd


class SimpleProx(XSolver):
    r"""Step of :math:`f(x) = \tfrac{\beta}{2} \lVert x - h \rVert^2`.

    The minimiser is the average :math:`x = (\beta h + \rho v) / (\beta + \rho)`.

    Args:
        h_NBd: what each agent believes.
        beta: positive confidence, a scalar tensor or one that broadcasts.
        validate_args: check the value (this waits for the device).

    Raises:
        ValueError: if ``beta <= 0``.

    Source: Sheaf-ADMM (arXiv 2605.31005), fixed-curvature ablation.
    """

    def __init__(self, h_NBd: Tensor, beta: Tensor, validate_args: bool = True) -> None:
        self.h_NBd, self.beta, self.validate_args = h_NBd, beta, validate_args
        if self._checks():
            _refuse(beta <= 0, "SimpleProx needs beta > 0", beta)

    def bind(self, rho: Tensor) -> Update:
        slope = rho / (self.beta + rho)
        offset = (1 - slope) * self.h_NBd
        return lambda v_NBd: torch.addcmul(offset, slope, v_NBd)


class DenseQuadratic(XSolver):
    r"""Step of :math:`f(x) = \tfrac12 x^\top Q x + q^\top x` with a full matrix.

    The minimiser is :math:`x = (Q + \rho I)^{-1} (\rho v - q)`; the Cholesky factor is computed once per forward.

    Args:
        Q_NBdd: symmetric positive semidefinite matrices, ``[N, B, d, d]`` (or broadcasting).
        q_NBd: linear term.
        validate_args: check that the factorisation exists (this waits for the device).

    Raises:
        ValueError: if ``Q`` is not symmetric or ``Q + rho I`` is not positive definite.

    Source: Sheaf-ADMM (arXiv 2605.31005), appendix on objectives; Boyd et al. 2011, section 4.2.
    """

    def __init__(self, Q_NBdd: Tensor, q_NBd: Tensor, validate_args: bool = True) -> None:
        self.Q_NBdd, self.q_NBd, self.validate_args = _full_precision(Q_NBdd), _full_precision(q_NBd), validate_args
        if self._checks() and not torch.allclose(self.Q_NBdd, self.Q_NBdd.mT, atol=1e-5):
            raise ValueError(f"{type(self).__name__} needs symmetric matrices Q; use (Q + Q.mT) / 2")

    def bind(self, rho: Tensor) -> Update:
        factor = self._curvature_factor(rho)
        return lambda v_NBd: self._free_minimiser(factor, v_NBd, rho)

    def _curvature_factor(self, rho: Tensor) -> Tensor:
        """Cholesky factor of Q + rho I."""
        diagonal = (rho * torch.ones_like(self.q_NBd)).diag_embed()
        return self._factor(self.Q_NBdd + diagonal, "Q + rho I is not positive definite; Q must be positive semidefinite")

    def _free_minimiser(self, factor: Tensor, v_NBd: Tensor, rho: Tensor) -> Tensor:
        """Minimiser without constraints."""
        return torch.cholesky_solve((rho * v_NBd - self.q_NBd).unsqueeze(-1), factor).squeeze(-1)


class EqualityQP(DenseQuadratic):
    r"""Step of :math:`f(x) = \tfrac12 x^\top Q x + q^\top x` subject to :math:`A x = b`.

    With :math:`M = Q + \rho I`, the free minimiser :math:`y = M^{-1}(\rho v - q)` and the Schur complement
    :math:`S = A M^{-1} A^\top`,

    .. math::
        x = y - M^{-1} A^\top S^{-1} (A y - b).

    Args:
        Q_NBdd: symmetric positive semidefinite matrices, ``[N, B, d, d]``.
        q_NBd: linear term.
        A_NBmd: constraint rows, linearly independent, ``m <= d``.
        b_NBm: right sides.
        validate_args: check that both factorisations exist (this waits for the device).

    Raises:
        ValueError: if shapes disagree, ``Q + rho I`` is not positive definite, or the rows of ``A`` are dependent.

    Source: Sheaf-ADMM (arXiv 2605.31005), appendix on objectives.
    """

    def __init__(self, Q_NBdd: Tensor, q_NBd: Tensor, A_NBmd: Tensor, b_NBm: Tensor, validate_args: bool = True) -> None:
        super().__init__(Q_NBdd, q_NBd, validate_args)
        self.A_NBmd, self.b_NBm = _full_precision(A_NBmd), _full_precision(b_NBm)
        if A_NBmd.shape[-1] != q_NBd.shape[-1] or A_NBmd.shape[-2] != b_NBm.shape[-1]:
            raise ValueError(
                f"EqualityQP needs A of shape [..., m, d] and b of shape [..., m] with d = {q_NBd.shape[-1]}, "
                f"got A {tuple(A_NBmd.shape)} and b {tuple(b_NBm.shape)}"
            )

    def bind(self, rho: Tensor) -> Update:
        factor = self._curvature_factor(rho)
        lifted_NBdm = torch.cholesky_solve(self.A_NBmd.mT, factor)
        schur = self._factor(self.A_NBmd @ lifted_NBdm, "the rows of A are linearly dependent; remove redundant constraints")

        def update(v_NBd: Tensor) -> Tensor:
            free_NBd = self._free_minimiser(factor, v_NBd, rho)
            violation = self.A_NBmd @ free_NBd.unsqueeze(-1) - self.b_NBm.unsqueeze(-1)
            return free_NBd - (lifted_NBdm @ torch.cholesky_solve(violation, schur)).squeeze(-1)

        return update
