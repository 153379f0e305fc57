"""What a network of any kind predicts, as a prediction of the data (plain torch)."""

from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor

from lightning_modules.f_dpm_solver.schedules import NoiseSchedule, is_linear_flow, is_variance_preserving, levels
from lightning_modules.generative.rectified_flow import guided

DataPrediction = Callable[[Tensor, float], Tensor]
PredictionType = Literal["epsilon", "sample", "v_prediction", "flow_prediction"]


def data_prediction(output: Tensor, x: Tensor, a: float, s: float, prediction_type: PredictionType) -> Tensor:
    r"""Turn the output o of a network at :math:`x = a x_0 + s \epsilon` into its prediction D of :math:`x_0`.

    .. math::
        D = \frac{x - s o}{a} \;(\epsilon), \qquad D = o \;(x_0), \qquad D = a x - s o \;(v = a \epsilon - s x_0), \qquad
        D = x - s o \;(u = \epsilon - x_0)

    Args:
        output: o, of the shape of x.
        x: the state.
        a: its signal.
        s: its noise; :math:`a^2 + s^2 = 1` for v and :math:`a + s = 1` for u.
        prediction_type: what o predicts: ``epsilon``, ``sample``, ``v_prediction`` or ``flow_prediction``.

    Raises:
        ValueError: if the type is unknown, or the noise says nothing about the data because a = 0.
    """
    if prediction_type == "sample":
        return output
    if prediction_type == "epsilon":
        if a == 0:
            raise ValueError("a network that predicts epsilon says nothing about the data where alpha = 0: start at a smaller time")
        return (x / a).add_(output, alpha=-s / a)
    if prediction_type == "v_prediction":
        return (a * x).add_(output, alpha=-s)
    if prediction_type == "flow_prediction":
        return torch.add(x, output, alpha=-s)
    raise ValueError(f"unknown prediction type {prediction_type!r}: choose one of {', '.join(get_args(PredictionType))}")


class Denoiser:
    """A network as the function (x, t) → D that samplers call; counts its calls.

    The network is called as ``net(x, t_B)``, with a condition as ``net(x, t_B, condition)``. Under guidance it is called once, with
    the conditional and the unconditional half in one batch.

    Args:
        net: the network.
        prediction_type: what it predicts: ``epsilon``, ``sample``, ``v_prediction`` or ``flow_prediction``.
        schedule: its schedule, whose time t is.
        guidance_scale: weight of classifier-free guidance, applied to what the network predicts; 1 is none.
        condition: what it is conditioned on, one for each sample, ``[B, ...]``.
        null_condition: the condition that stands for none, ``[B, ...]`` or ``[1, ...]``, for guidance.
        edm_coordinates: call the network with x / α, as EDM networks expect, instead of x.
        net_dtype: precision of the network; None takes that of the state.
        clamp: smallest and largest value of the data, to which D is clamped; None does not.

    Attributes:
        calls: number of calls of the network.
        times: their times.

    Raises:
        ValueError: if the type is unknown or does not fit the schedule, or guidance lacks a condition.
    """

    def __init__(
        self,
        net: Callable[..., Tensor],
        prediction_type: PredictionType,
        schedule: NoiseSchedule,
        guidance_scale: float = 1.0,
        condition: Tensor | None = None,
        null_condition: Tensor | None = None,
        *,
        edm_coordinates: bool = False,
        net_dtype: torch.dtype | None = None,
        clamp: tuple[float, float] | None = None,
    ) -> None:
        if prediction_type not in get_args(PredictionType):
            raise ValueError(f"unknown prediction type {prediction_type!r}: choose one of {', '.join(get_args(PredictionType))}")
        if prediction_type == "v_prediction" and not is_variance_preserving(schedule):
            raise ValueError("v_prediction needs a schedule with alpha² + sigma² = 1: take one, or convert the output yourself")
        if prediction_type == "flow_prediction" and not is_linear_flow(schedule):
            raise ValueError("flow_prediction needs a schedule with alpha + sigma = 1: take FlowLinearSchedule")
        if guidance_scale != 1 and (condition is None or null_condition is None):
            raise ValueError(f"guidance_scale={guidance_scale} needs a condition and a null_condition, which stands for none")
        self.net, self.prediction_type, self.schedule = net, prediction_type, schedule
        self.guidance_scale, self.condition, self.null_condition = guidance_scale, condition, null_condition
        self.edm_coordinates, self.net_dtype, self.clamp = edm_coordinates, net_dtype, clamp
        self.calls, self.times = 0, list[float]()
        self._levels: dict[float, tuple[float, float]] = {}

    def __call__(self, x: Tensor, t: float | Tensor) -> Tensor:
        """Return D, of the shape and precision of x.

        Args:
            x: states, ``[B, ...]``, in the coordinates of the schedule: α x₀ + σ ε.
            t: their time.
        """
        time = float(t)
        if time not in self._levels:
            self._levels[time] = levels(self.schedule, time)
        a, s = self._levels[time]
        self.calls += 1
        self.times.append(time)
        net_x = x / a if self.edm_coordinates else x
        output = self._predict(net_x if self.net_dtype is None else net_x.to(self.net_dtype), time).to(x.dtype)
        data = data_prediction(output, x, a, s, self.prediction_type)
        return data if self.clamp is None else data.clamp(*self.clamp)

    def _predict(self, x: Tensor, time: float) -> Tensor:
        t_B = torch.full((len(x),), time, device=x.device, dtype=torch.promote_types(x.dtype, torch.float32))
        if self.condition is None:
            return self.net(x, t_B)
        if self.guidance_scale == 1 or self.null_condition is None:
            return self.net(x, t_B, self.condition)
        null = self.null_condition.expand_as(self.condition)
        both = self.net(torch.cat([x, x]), torch.cat([t_B, t_B]), torch.cat([self.condition, null]))
        conditional, unconditional = both.chunk(2)
        return guided(conditional, unconditional, self.guidance_scale)
