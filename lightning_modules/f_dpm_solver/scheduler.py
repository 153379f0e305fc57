"""F-DPMSolver as a scheduler of diffusers, for networks that are told a discrete time."""

from typing import Literal, cast, get_args

import numpy as np
import torch
from torch import Tensor

from lightning_modules.f_dpm_solver.denoiser import data_prediction
from lightning_modules.f_dpm_solver.diffusers_extra import KarrasDiffusionSchedulers, SchedulerMixin, diffusers, register_to_config
from lightning_modules.f_dpm_solver.f_dpm import FDPM
from lightning_modules.f_dpm_solver.grids import Grid, make_grid
from lightning_modules.f_dpm_solver.lookahead_scheduler import LookaheadScheduler
from lightning_modules.f_dpm_solver.schedules import DiscreteVPSchedule, levels_like

__all__ = ["FDPMSolverScheduler", "SchedulerMixin"]
"""A saved pipeline names this file, and diffusers looks in it for the base that says how to load the scheduler."""

Prediction = Literal["epsilon", "sample", "v_prediction"]
Spacing = Literal["linspace", "leading", "trailing"]


class FDPMSolverScheduler(LookaheadScheduler):
    r"""F-DPMSolver in the pipelines of diffusers: ``pipe.scheduler = FDPMSolverScheduler.from_config(pipe.scheduler.config)``.

    .. math::
        D_i = D(\hat x_i, t_i), \qquad x_i = \frac{\sigma_i}{\sigma_{i-1}} x_{i-1}
            + \Bigl( \alpha_i - \alpha_{i-1} \frac{\sigma_i}{\sigma_{i-1}} \Bigr) D_i, \qquad i = 1 .. N

    The pipeline carries :math:`\hat x`, see :class:`~lightning_modules.f_dpm_solver.lookahead_scheduler.LookaheadScheduler`. With
    ``linspace`` the points are the whole times nearest to evenly spaced ones, from T - 1 to 0.

    What to know:

    - the last state is at the time of least noise, not without any; ``final="data"`` returns the last prediction of the data.
    - a callback that edits the latents edits the lookahead; :attr:`state` is the state.
    - pipelines that do not multiply their noise by ``init_noise_sigma`` (DDPM, DiT, latent diffusion) begin with noise that is
      :math:`1 / k_0` too long, 6e-4 at 5 steps.
    - :class:`~diffusers.DDIMPipeline` puts its own scheduler in the place of any other: load its folder as a ``DDPMPipeline``.

    Args:
        num_train_timesteps: T.
        beta_start, beta_end, beta_schedule, trained_betas: the noise schedule, as in diffusers.
        prediction_type: what the network predicts.
        solver_order: order of the predictor; above 1 it may diverge with few steps.
        timestep_spacing: where the points are: ``linspace``, ``leading`` or ``trailing``, as in diffusers, with one point more.
        use_karras_sigmas: space the noise levels as Karras et al. do; the network is told times between the whole ones.
        final: ``state`` or ``data``.
        steps_offset: added to the times of ``leading``.
        lower_order_final: predict the last point with order 1.
        rescale_betas_zero_snr: change the schedule so that the noisiest time has no signal.

    Raises:
        ValueError: if an option is unknown or does not fit.

    Source: Jiao et al. 2026 (arXiv 2512.24927).
    """

    _compatibles = [each.name for each in KarrasDiffusionSchedulers if not each.name.startswith("EDM")]
    schedule_key = "beta_schedule"

    @register_to_config
    def __init__(
        self,
        num_train_timesteps: int = 1000,
        beta_start: float = 0.0001,
        beta_end: float = 0.02,
        beta_schedule: str = "linear",
        trained_betas: np.ndarray | list[float] | None = None,
        prediction_type: Prediction = "epsilon",
        solver_order: int = 1,
        timestep_spacing: Spacing = "linspace",
        use_karras_sigmas: bool = False,
        final: Literal["state", "data"] = "state",
        steps_offset: int = 0,
        lower_order_final: bool = False,
        rescale_betas_zero_snr: bool = False,
    ) -> None:
        if prediction_type not in get_args(Prediction):
            raise ValueError(f"unknown prediction_type={prediction_type!r}: choose one of {', '.join(get_args(Prediction))}")
        if timestep_spacing not in get_args(Spacing):
            raise ValueError(f"unknown timestep_spacing={timestep_spacing!r}: choose one of {', '.join(get_args(Spacing))}")
        self._kind: Prediction = prediction_type
        self.solver = FDPM(solver_order, final, lower_order_final=lower_order_final)
        table = diffusers.DDIMScheduler(
            num_train_timesteps,
            beta_start,
            beta_end,
            beta_schedule,
            trained_betas,
            rescale_betas_zero_snr=rescale_betas_zero_snr,
        )
        self.betas, self.alphas_cumprod = table.betas, table.alphas_cumprod
        self.schedule = DiscreteVPSchedule(self.alphas_cumprod)
        every_time = torch.arange(num_train_timesteps, dtype=torch.float64)
        self._signal, self._deviation = self.schedule.alpha(every_time), self.schedule.sigma(every_time)
        self.timesteps = torch.arange(num_train_timesteps).flip(0)
        self._forget()

    def set_timesteps(
        self,
        num_inference_steps: int | None = None,
        device: str | torch.device | None = None,
        timesteps: list[int] | None = None,
    ) -> None:
        """Choose the points, and forget the state.

        Args:
            num_inference_steps: N, the number of network calls.
            device: where the timesteps shall be.
            timesteps: the N + 1 times of the points instead, falling; the network is called at all but the first.

        Raises:
            ValueError: if there are too many steps for different times, or neither or both are given.
        """
        if (num_inference_steps is None) == (timesteps is None):
            raise ValueError("set_timesteps needs either num_inference_steps or the N + 1 timesteps of a grid")
        if timesteps is not None:
            grid = self._at(timesteps)
        elif self.config.use_karras_sigmas:
            grid = make_grid(self.schedule, cast(int, num_inference_steps), "karras")
        else:
            grid = self._spaced(cast(int, num_inference_steps))
        told = grid.t[1:].float() if self.config.use_karras_sigmas else grid.t[1:].long()
        self._follow(grid, told.to(device))

    def scale_model_input(self, sample: Tensor, timestep: float | Tensor | None = None) -> Tensor:
        """Return the sample as it is."""
        return sample

    def add_noise(self, original_samples: Tensor, noise: Tensor, timesteps: Tensor) -> Tensor:
        r"""Return :math:`\alpha_t x_0 + \sigma_t \epsilon`, ``[B, ...]``.

        Before the first step this tells the scheduler that the pipeline begins from a real state.

        Args:
            original_samples: :math:`x_0`, ``[B, ...]``.
            noise: ε, ``[B, ...]``.
            timesteps: t of each sample or of all, ``[B]`` or ``[1]``.
        """
        self._real_state |= self._step_index is None
        alpha, sigma = levels_like(self.schedule, timesteps.to(original_samples.device), original_samples)
        return alpha * original_samples + sigma * noise

    def _spaced(self, steps: int) -> Grid:
        config, T = self.config, self.config.num_train_timesteps
        if steps < 1:
            raise ValueError(f"a grid needs at least one step, got N = {steps}")
        if config.timestep_spacing == "linspace":
            times = np.linspace(T - 1, 0, steps + 1).round()
        elif config.timestep_spacing == "leading":
            times = np.arange(steps, -1, -1) * (T // (steps + 1)) + config.steps_offset
        else:
            times = np.append(np.arange(T, 0, -T / steps).round() - 1, 0)
        return self._at(times)

    def _at(self, times: np.ndarray | list[int]) -> Grid:
        whole, T = np.asarray(times, dtype=np.int64), self.config.num_train_timesteps
        if whole.min() < 0 or whole.max() >= T:
            raise ValueError(f"the timesteps {whole.tolist()} must lie between 0 and {T - 1}")
        t = torch.from_numpy(whole)
        return Grid(t, self._signal[t], self._deviation[t], self.schedule)

    def _data(self, output: Tensor, sample: Tensor, a: float, s: float) -> Tensor:
        return data_prediction(output, sample, a, s, self._kind)

    def _noise(self, output: Tensor) -> Tensor | None:
        return output if self._kind == "epsilon" else None
