"""F-DPMSolver as a scheduler of diffusers, for networks that are told the noise level in the way of EDM."""

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from lightning_modules.f_dpm_solver.diffusers_extra import SchedulerMixin, register_to_config
from lightning_modules.f_dpm_solver.f_dpm import FDPM
from lightning_modules.f_dpm_solver.grids import Grid, make_grid
from lightning_modules.f_dpm_solver.lookahead_scheduler import LookaheadScheduler
from lightning_modules.f_dpm_solver.schedules import EDMSchedule

__all__ = ["FDPMSolverEDMScheduler", "SchedulerMixin"]
"""A saved pipeline names this file, and diffusers looks in it for the base that says how to load the scheduler."""

Prediction = Literal["epsilon", "v_prediction"]
Spacing = Literal["karras", "exponential"]


class FDPMSolverEDMScheduler(LookaheadScheduler):
    r"""F-DPMSolver for networks F with the preconditioning of EDM, in whose coordinates :math:`y = x_0 + \sigma n` it works.

    .. math::
        D(y, \sigma) = \frac{\sigma_d^2}{\sigma^2 + \sigma_d^2} \, y
            \pm \frac{\sigma \sigma_d}{\sqrt{\sigma^2 + \sigma_d^2}} \,
            F\Bigl( \frac{y}{\sqrt{\sigma^2 + \sigma_d^2}}, \tfrac14 \ln \sigma \Bigr), \qquad
        y_i = \frac{\sigma_i}{\sigma_{i-1}} y_{i-1} + \Bigl( 1 - \frac{\sigma_i}{\sigma_{i-1}} \Bigr) D(\hat y_i, \sigma_i)

    with + for ``epsilon`` and - for ``v_prediction``. It takes the place of diffusers' ``EDMEulerScheduler``. The pipeline carries
    :math:`\hat y`, see :class:`~lightning_modules.f_dpm_solver.lookahead_scheduler.LookaheadScheduler`.

    Args:
        sigma_min: last noise level, positive.
        sigma_max: first noise level.
        sigma_data: standard deviation of the data :math:`\sigma_d`.
        sigma_schedule: ``karras`` or ``exponential``.
        num_train_timesteps: what ``len`` of the scheduler is.
        prediction_type: sign of the output, see above.
        rho: curvature of ``karras``.
        solver_order: order of the predictor; above 1 it may diverge with few steps.
        final: ``state`` returns the state at ``sigma_min``, ``data`` the last prediction of the data.
        lower_order_final: predict the last point with order 1.

    Raises:
        ValueError: if an option is unknown or does not fit.

    Source: Jiao et al. 2026 (arXiv 2512.24927); Karras et al. 2022 (arXiv 2206.00364), table 1.
    """

    _compatibles = ["EDMEulerScheduler", "EDMDPMSolverMultistepScheduler"]
    schedule_key = "sigma_data"

    @register_to_config
    def __init__(
        self,
        sigma_min: float = 0.002,
        sigma_max: float = 80.0,
        sigma_data: float = 0.5,
        sigma_schedule: Spacing = "karras",
        num_train_timesteps: int = 1000,
        prediction_type: Prediction = "epsilon",
        rho: float = 7.0,
        solver_order: int = 1,
        final: Literal["state", "data"] = "state",
        lower_order_final: bool = False,
    ) -> None:
        if prediction_type not in get_args(Prediction):
            raise ValueError(f"unknown prediction_type={prediction_type!r}: choose one of {', '.join(get_args(Prediction))}")
        if sigma_schedule not in get_args(Spacing):
            raise ValueError(f"unknown sigma_schedule={sigma_schedule!r}: choose one of {', '.join(get_args(Spacing))}")
        if sigma_data <= 0:
            raise ValueError(f"sigma_data={sigma_data} must be positive: it is the standard deviation of the data")
        if sigma_min <= 0:
            raise ValueError(
                f"F-DPM evaluates the network at the last grid point, got sigma_min={sigma_min}: use sigma_min > 0, "
                "with final='data' for a sample without noise"
            )
        self.solver = FDPM(solver_order, final, lower_order_final=lower_order_final)
        self.timesteps = torch.empty(0)
        self._forget()

    def set_timesteps(
        self,
        num_inference_steps: int | None = None,
        device: str | torch.device | None = None,
        sigmas: Tensor | list[float] | None = None,
    ) -> None:
        """Choose the points, and forget the state.

        Args:
            num_inference_steps: N, the number of network calls.
            device: where the timesteps shall be.
            sigmas: the N + 1 noise levels of the points instead, falling; the network is called at all but the first.

        Raises:
            ValueError: if N < 1, the levels do not fall or are not positive, or neither or both are given.
        """
        if (num_inference_steps is None) == (sigmas is None):
            raise ValueError("set_timesteps needs either num_inference_steps or the N + 1 sigmas of a grid")
        if sigmas is not None:
            levels = torch.as_tensor(sigmas, dtype=torch.float64)
        else:
            config = self.config
            kind: Literal["karras", "log_snr"] = "karras" if config.sigma_schedule == "karras" else "log_snr"
            limits = {"sigma_max": config.sigma_max, "sigma_min": config.sigma_min, "rho": config.rho}
            levels = make_grid(EDMSchedule(), num_inference_steps or 0, kind, **limits).t
        self._follow(Grid(levels, torch.ones_like(levels), levels), self.precondition_noise(levels[1:]).float().to(device))

    def scale_model_input(self, sample: Tensor, timestep: float | Tensor) -> Tensor:
        """Return :math:`y / \\sqrt{\\sigma^2 + \\sigma_d^2}`, what the network sees."""
        index = self._step_index
        if index is None:
            index = self.index_for_timestep(timestep) if self._begin_index is None else self._begin_index
        return self.precondition_inputs(sample, self._ready().noise[index + 1])

    def precondition_inputs(self, sample: Tensor, sigma: float) -> Tensor:
        """Return what the network sees of a sample."""
        return sample / math.hypot(sigma, self.config.sigma_data)

    def precondition_noise(self, sigma: Tensor) -> Tensor:
        """Return what the network is told of the noise level."""
        return 0.25 * sigma.log()

    def precondition_outputs(self, sample: Tensor, model_output: Tensor, sigma: float) -> Tensor:
        """Return the data prediction."""
        length = math.hypot(sigma, self.config.sigma_data)
        sign = 1 if self.config.prediction_type == "epsilon" else -1
        skip, out = (self.config.sigma_data / length) ** 2, sign * sigma * self.config.sigma_data / length
        return (sample * skip).add_(model_output, alpha=out)

    def add_noise(self, original_samples: Tensor, noise: Tensor, timesteps: Tensor) -> Tensor:
        r"""Return :math:`x_0 + \sigma n`, ``[B, ...]``.

        Before the first step this tells the scheduler that the pipeline begins from a real state.

        Args:
            original_samples: :math:`x_0`, ``[B, ...]``.
            noise: n, ``[B, ...]``.
            timesteps: :math:`\tfrac14 \ln \sigma` of each sample or of all, ``[B]`` or ``[1]``.
        """
        self._real_state |= self._step_index is None
        sigma = (4 * timesteps.to(original_samples)).exp()
        return original_samples + sigma.view(-1, *[1] * (original_samples.ndim - 1)) * noise

    def _data(self, output: Tensor, sample: Tensor, a: float, s: float) -> Tensor:
        return self.precondition_outputs(sample, output, s)
