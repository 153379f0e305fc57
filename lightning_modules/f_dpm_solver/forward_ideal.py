"""The implicit rule that F-DPMSolver approximates, for study (plain torch)."""

from collections.abc import Iterator

import torch
from torch import Tensor

from lightning_modules.f_dpm_solver.denoiser import DataPrediction
from lightning_modules.f_dpm_solver.grids import Grid
from lightning_modules.f_dpm_solver.sampler import Sampler, data_coefficients, move


class ForwardIdeal(Sampler):
    r"""Backward exponential Euler method, whose data prediction is taken at the state it leads to.

    .. math::
        x_{i+1} = c_i x_i + b_i D(x_{i+1}, t_{i+1})

    Solved by fixed-point iteration from DDIM's step with the last data prediction; each iteration is a network call and waits for
    the device. The iteration contracts where :math:`b_i \lVert \partial D / \partial x \rVert < 1`, as small steps do.

    Args:
        tolerance: largest change, relative to the largest entry of the state, at which the iteration ends; None takes 1e-12 in
            float64 and 1e-6 in float32.
        max_iterations: iterations of a step, at most.

    Raises:
        ValueError: if the tolerance is not positive or no iteration is allowed.
        RuntimeError: if an iteration does not converge.

    Source: Jiao et al. 2026 (arXiv 2512.24927).
    """

    def __init__(self, tolerance: float | None = None, max_iterations: int = 200) -> None:
        if (tolerance is not None and tolerance <= 0) or max_iterations < 1:
            raise ValueError(f"need tolerance > 0 and max_iterations >= 1, got {tolerance} and {max_iterations}")
        self.tolerance, self.max_iterations = tolerance, max_iterations

    def states(self, denoiser: DataPrediction, x: Tensor, grid: Grid) -> Iterator[tuple[Tensor, Tensor]]:
        tolerance = self.tolerance or (1e-12 if x.dtype == torch.float64 else 1e-6)
        data = torch.zeros_like(x)
        for i, (t, (c, b)) in enumerate(zip(grid.numbers.t[1:], data_coefficients(grid), strict=True)):
            guess = move(x, c, data, b)
            for _ in range(self.max_iterations):
                data = denoiser(guess, t)
                solved = move(x, c, data, b)
                change = (solved - guess).abs().max() / solved.abs().max().clamp_min(1)
                guess = solved
                if change <= tolerance:
                    break
            else:
                raise RuntimeError(
                    f"the implicit step {i + 1} of {grid.steps} to t = {t:.6g} did not converge in {self.max_iterations} "
                    f"iterations (last relative change {change.item():.3g}): take more steps, or a larger tolerance"
                )
            x = guess
            yield x, data
