"""What the schedulers of diffusers that run F-DPM share: the lookahead travels through the pipeline, the state stays here."""

import warnings
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lightning_modules.f_dpm_solver.diffusers_extra import BaseOutput, ConfigMixin, SchedulerMixin
from lightning_modules.f_dpm_solver.f_dpm import FDPM
from lightning_modules.f_dpm_solver.grids import Grid
from lightning_modules.f_dpm_solver.lookahead import Lookahead

FOREIGN_MEANING = ("solver_order", "lower_order_final")
"""Options that the multistep schedulers of diffusers have too, about something else."""


Form = tuple[torch.Size, torch.dtype, torch.device]


@dataclass
class FDPMSolverSchedulerOutput(BaseOutput):
    """What a step returns.

    Attributes:
        prev_sample: what the network sees next; after the last step the sample.
        pred_original_sample: the prediction of the data.
    """

    prev_sample: Tensor
    pred_original_sample: Tensor | None = None


class LookaheadScheduler(SchedulerMixin, ConfigMixin):
    r"""A scheduler whose pipeline carries lookaheads.

    A pipeline calls its network on its latents at ``timesteps[i]`` and then :meth:`step`. The timesteps are :math:`t_1 .. t_N`, the
    latents the lookaheads, and the noise times :attr:`init_noise_sigma` is the first of them. N steps cost N network calls.

    An image-to-image pipeline begins from a real state, which it made with :meth:`add_noise`, or at a later timestep: then the
    first call of its network only fills the history.

    A subclass says in ``_data`` and ``_noise`` what an output of the network means.

    Attributes:
        order: network calls of a timestep.
        timesteps: what the network is told, ``[N]``.
        grid: the N + 1 points.
    """

    order = 1
    schedule_key = ""
    """A key that the configurations of all schedulers with a schedule of this kind have."""

    config: Any
    solver: FDPM
    timesteps: Tensor
    grid: Grid | None = None
    num_inference_steps: int | None
    _lookahead: Lookahead | None
    _step_index: int | None
    _begin_index: int | None
    _real_state: bool
    _form: Form

    @classmethod
    def from_config(cls, config: Any = None, return_unused_kwargs: bool = False, **kwargs: Any) -> Any:
        """Build the scheduler from a configuration, its own or that of a compatible scheduler.

        The noise schedule, the spacing and the prediction type are taken over. The order of a multistep scheduler is not: it means
        something else there.

        Raises:
            ValueError: if the configuration is that of a scheduler with another kind of schedule.
        """
        if isinstance(config, dict) and not {"_class_name", "_use_default_values"}.isdisjoint(config):  # not one typed by hand
            name = config.get("_class_name")
            if cls.schedule_key not in config or config.get("use_flow_sigmas"):
                raise ValueError(
                    f"{cls.__name__} cannot take over the schedule of {name or 'this configuration'}: it knows that of "
                    f"{', '.join(cls._compatibles[:2])} and their like. FDPMSolverScheduler is for networks told the time, "
                    "FDPMSolverEDMScheduler for those told the noise level; pipelines of flow models do not scale their noise by "
                    "init_noise_sigma, which a lookahead needs: sample those with get_sampler('f_dpm')"
                )
            if (name != cls.__name__) if name else ("final" not in config):
                config = {key: value for key, value in config.items() if key not in FOREIGN_MEANING}
        return super().from_config(config, return_unused_kwargs, **kwargs)

    @property
    def init_noise_sigma(self) -> float:
        """Factor that makes the first lookahead of normal noise; belongs to the timesteps that were set last."""
        lookahead = self._ready()
        return lookahead.first_scale * lookahead.noise_length

    @property
    def state(self) -> Tensor:
        """The state x behind the lookahead, to be edited in place by callbacks that edit the latents; the next step changes it."""
        lookahead = self._ready()
        if self._step_index is None:
            raise RuntimeError("there is no state before the first step")
        return lookahead.state

    @property
    def step_index(self) -> int | None:
        """Number of steps done, counted from the first timestep; None before the first step."""
        return self._step_index

    @property
    def begin_index(self) -> int | None:
        """Index of the timestep at which the pipeline begins; None: found by its value."""
        return self._begin_index

    def set_begin_index(self, begin_index: int = 0) -> None:
        """Say at which timestep the pipeline begins."""
        self._begin_index = begin_index

    def index_for_timestep(self, timestep: float | Tensor, schedule_timesteps: Tensor | None = None) -> int:
        """Return the index of a timestep.

        Raises:
            ValueError: if it is none of them.
        """
        timesteps = self.timesteps if schedule_timesteps is None else schedule_timesteps
        value = timestep.to(timesteps.device) if isinstance(timestep, Tensor) else timestep
        found = (timesteps == value).nonzero().flatten()
        if not len(found):
            raise ValueError(f"timestep {float(timestep):g} is none of scheduler.timesteps: pass one of those")
        return int(found[0])

    def step(
        self,
        model_output: Tensor,
        timestep: float | Tensor,
        sample: Tensor,
        generator: torch.Generator | list[torch.Generator] | None = None,
        return_dict: bool = True,
    ) -> FDPMSolverSchedulerOutput | tuple[Tensor, Tensor]:
        """Take the output of the network and return what it shall see next.

        Args:
            model_output: output of the network at ``sample`` and ``timestep``.
            timestep: the current timestep.
            sample: what the network saw (before ``scale_model_input``).
            generator: not used, nothing here is random.
            return_dict: whether the return value is a :class:`FDPMSolverSchedulerOutput` or a tuple.

        Raises:
            RuntimeError: before ``set_timesteps``, after the last step, if shape, precision or device changed, or, after the last
                step, if the network returned NaN or Inf.
        """
        lookahead, form = self._ready(), (sample.shape, sample.dtype, sample.device)
        if sample.dtype in (torch.float16, torch.bfloat16):
            sample, model_output = sample.float(), model_output.float()
        index = self._begin(timestep, sample, form) if self._step_index is None else self._step_index
        if form != self._form:
            before, now = (f"shape {list(shape)}, {dtype}, on {device}" for shape, dtype, device in (self._form, form))
            raise RuntimeError(f"the latents had {before} and have {now}: call set_timesteps before you sample anything else")
        point = index + 1
        if point > lookahead.grid.steps:
            raise RuntimeError(f"all {lookahead.grid.steps} timesteps are done: call set_timesteps before you sample again")
        data = self._data(model_output, sample, lookahead.signal[point], lookahead.noise[point])
        following = lookahead.advance(sample, data, self._noise(model_output))
        self._step_index = point
        if following.dtype != form[1]:
            following = following.to(form[1])
        return FDPMSolverSchedulerOutput(following, data) if return_dict else (following, data)

    def __len__(self) -> int:
        return self.config.num_train_timesteps

    @abstractmethod
    def _data(self, output: Tensor, sample: Tensor, a: float, s: float) -> Tensor:
        """Return the data prediction from the output of the network at a sample with signal a and noise s."""

    def _noise(self, output: Tensor) -> Tensor | None:
        """Return the noise prediction if the network makes one."""
        return None

    def _forget(self) -> None:
        """Be without timesteps."""
        self._lookahead = self._step_index = self._begin_index = self.num_inference_steps = None
        self._real_state = False

    def _follow(self, grid: Grid, timesteps: Tensor) -> None:
        """Follow a grid anew; ``timesteps`` are those of the points 1 .. N."""
        self._forget()
        self.grid, self.timesteps, self.num_inference_steps = grid, timesteps, grid.steps
        self._lookahead = Lookahead(self.solver, grid)

    def _ready(self) -> Lookahead:
        if self._lookahead is None:
            raise RuntimeError("call set_timesteps first: without timesteps there is neither a lookahead nor init_noise_sigma")
        return self._lookahead

    def _begin(self, timestep: float | Tensor, sample: Tensor, form: Form) -> int:
        if form[1] != sample.dtype:
            warnings.warn(f"latents of {form[1]} lose what the steps add: the state is kept in {sample.dtype}", stacklevel=3)
        index = self.index_for_timestep(timestep) if self._begin_index is None else self._begin_index
        if index or self._real_state:
            self._ready().start_at(index + 1, sample)
        else:
            self._ready().start(sample)
        self._form = form
        return index
