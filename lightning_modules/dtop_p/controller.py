"""Controller that holds the average number of active experts at its target by moving the threshold p.

Legend: L mixture-of-experts layers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from lightning_modules.dtop_p.closed_form import initial_threshold, plant_gain

Scope = Literal["global", "layer"]


class ControllerInfo(NamedTuple):
    """What a step of the controller saw and did, without gradients.

    Attributes:
        p: the new threshold, a scalar or ``[L]``.
        active: average number of active experts of all layers.
        active_L: the same of each layer, nan where no token was seen.
        error: e, a scalar or ``[L]``.
        updated: whether p was computed anew, a bool of the shape of p.
    """

    p: Tensor
    active: Tensor
    active_L: Tensor
    error: Tensor
    updated: Tensor


class SparsityController(nn.Module):
    r"""Proportional-integral controller of the threshold p, one step an optimizer step n.

    .. math::
        a = \frac1L \sum_l \frac{\text{active experts in layer } l}{\text{tokens in layer } l}, \qquad
        e_n = \frac{T - a}{N}, \qquad
        I_n = I_{n-1} + e_n, \qquad
        p_{n+1} = \operatorname{clip}(p_0 + K_p e_n + K_i I_n,\; p_{\min},\; p_{\max})

    The form is positional: adding :math:`K_p e_n + K_i I_n` to :math:`p_n` would integrate twice and oscillate. Anti-windup: where
    the clip holds and :math:`e_n` pushes further out, :math:`I_n` stays :math:`I_{n-1}` for the steps to come.

    The state (p, the integral, :math:`p_0`, the number of updates) is in buffers, float64 even after a conversion of the module.
    What was observed since the last step is in none: data parallelism would overwrite each rank's by the first rank's. In
    evaluation mode nothing is observed.

    Both gains 0 keep p at its initial value: the baseline with a fixed p, observed alike.

    Args:
        num_experts: N.
        target: T, average number of active experts; with scope ``layer`` also one for each layer.
        num_layers: L.
        kp: proportional gain :math:`K_p`.
        ki: integral gain :math:`K_i`; about 0.2 for runs below 2000 steps and 0.02 above 20000.
        p_init: :math:`p_0`; ``auto`` takes :func:`closed_form.initial_threshold`.
        scope: ``global``: one p for all layers; ``layer``: each layer has its own p, integral and target.
        p_min: smallest p; None: 1 / (2N).
        p_max: largest p.
        anti_windup: stop integrating where the clip holds.
        theta_init: initial standard deviation of the logits, for ``auto`` and the warning about stability.
        eval_p_ema: in evaluation mode use an exponential moving average of p with this decay; None: the last p.
        reset_controller: start anew, instead of failing, from a checkpoint with another number of experts, target or scope.

    Raises:
        ValueError: if an argument is out of range, or a checkpoint of another controller is loaded.

    Source: DTop-p (arXiv 2512.13996); the gains, the bounds, :math:`p_0` and the anti-windup are reconstructed.
    """

    p: Tensor
    integral: Tensor
    p0: Tensor
    p_ema: Tensor
    target: Tensor
    experts: Tensor
    num_updates: Tensor

    def __init__(
        self,
        num_experts: int,
        target: float | Sequence[float],
        num_layers: int,
        kp: float = 0.3,
        ki: float = 0.2,
        p_init: float | Literal["auto"] = "auto",
        scope: Scope = "global",
        p_min: float | None = None,
        p_max: float = 1 - 1e-4,
        anti_windup: bool = True,
        theta_init: float = 1.0,
        eval_p_ema: float | None = None,
        reset_controller: bool = False,
    ) -> None:
        super().__init__()
        p_min = 0.5 / num_experts if p_min is None else p_min
        targets = _targets(target, num_experts, num_layers, scope)
        _check(num_layers, kp, ki, p_init, p_min, p_max, theta_init, eval_p_ema)
        starts = [initial_threshold(value, num_experts, theta_init) if p_init == "auto" else float(p_init) for value in targets]
        self.starts = [min(max(start, p_min), p_max) for start in starts]
        self.targets = targets
        for start in set(self.starts):
            _warn_unstable(plant_gain(start, theta_init), kp, ki)
        self.num_experts, self.num_layers, self.scope = num_experts, num_layers, scope
        self.kp, self.ki, self.p_min, self.p_max = kp, ki, p_min, p_max
        self.anti_windup, self.eval_p_ema, self.reset_controller = anti_windup, eval_p_ema, reset_controller
        for name in ("p", "integral", "p0", "target", *(["p_ema"] if eval_p_ema is not None else [])):
            self.register_buffer(name, torch.empty(() if scope == "global" else num_layers, dtype=torch.float64))
        self.register_buffer("experts", torch.empty((), dtype=torch.int64))
        self.register_buffer("num_updates", torch.empty((), dtype=torch.int64))
        self._seen_2L = torch.zeros(2, num_layers, dtype=torch.float64)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Go back to the initial state."""
        for name, values in (("p", self.starts), ("p0", self.starts), ("p_ema", self.starts), ("target", self.targets)):
            if hasattr(self, name):
                getattr(self, name).copy_(torch.tensor(values, dtype=torch.float64).view_as(getattr(self, name)))
        self.integral.zero_()
        self.num_updates.zero_()
        self.experts.fill_(self.num_experts)
        self._seen_2L = torch.zeros(2, self.num_layers, dtype=torch.float64, device=self.p.device)

    def current(self, layer: int) -> Tensor:
        """Return p of a layer, a scalar tensor."""
        p = self.p if self.training or self.eval_p_ema is None else self.p_ema
        return p if self.scope == "global" else p[layer]

    @torch.no_grad()
    def observe(self, layer: int, counts: Tensor, valid: Tensor | None = None) -> None:
        """Count a layer's active experts and tokens; in evaluation mode, do nothing.

        Args:
            layer: number of the layer, from 0.
            counts: experts used by each token, of any shape.
            valid: False for tokens that do not count, of the same shape.

        Raises:
            ValueError: if there is no such layer or the shapes differ.
        """
        if not 0 <= layer < self.num_layers:
            raise ValueError(f"the controller has layers 0 to {self.num_layers - 1}, there is no {layer}")
        if valid is not None and valid.shape != counts.shape:
            raise ValueError(f"layer {layer}: valid has shape {list(valid.shape)}, the counts {list(counts.shape)}")
        if not self.training:
            return
        if self._seen_2L.device != counts.device:
            self._seen_2L = self._seen_2L.to(counts.device)
        if valid is None:
            active, tokens = counts.sum(), torch.full((), counts.numel(), device=counts.device)
        else:
            active, tokens = counts.masked_fill(~valid.bool(), 0).sum(), valid.sum()
        self._seen_2L[:, layer] += torch.stack([active, tokens])

    @torch.no_grad()
    def step(self, reduce: Callable[[Tensor], Tensor | None] | None = None) -> ControllerInfo:
        """Move p by what was observed since the last step, and forget it.

        Nothing waits for the device. Where no token was seen, or the average is not finite, p and the integral stay.

        Args:
            reduce: sums a float64 tensor ``[2, L]`` over all ranks and returns it, or does so in place.

        Raises:
            ValueError: if something has made the state less precise than float64.
        """
        if self.integral.dtype != torch.float64:
            raise ValueError(
                f"the controller's state was cast to {self.integral.dtype}, as the first form of FSDP does: use overlays/fsdp2.yaml"
            )
        seen_2L = self._seen_2L.to(self.p.device, copy=True)
        self._seen_2L = torch.zeros_like(self._seen_2L)
        if reduce is not None:
            reduced = reduce(seen_2L)
            seen_2L = seen_2L if reduced is None else reduced
        active_L = seen_2L[0] / seen_2L[1]  # 0 / 0 is nan
        active = active_L.nanmean()
        error = (self.target - (active if self.scope == "global" else active_L)) / self.num_experts
        updated = error.isfinite()
        integral = self.integral + error
        wished = self.p0 + self.kp * error + self.ki * integral
        p = wished.clamp(self.p_min, self.p_max)
        held = (wished != p) & (error.sign() == (wished - p).sign()) & self.anti_windup
        self.integral.copy_(torch.where(updated & ~held, integral, self.integral))
        self.p.copy_(torch.where(updated, p, self.p))
        if self.eval_p_ema is not None:
            self.p_ema.lerp_(self.p, 1 - self.eval_p_ema)
        self.num_updates += updated.any()
        return ControllerInfo(self.p.clone(), active, active_L, error, updated)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> SparsityController:
        exact = {name: buffer for name, buffer in self.named_buffers() if buffer.is_floating_point()}
        super()._apply(fn, recurse)
        for name, before in exact.items():
            after = getattr(self, name)
            if after.dtype != before.dtype:
                setattr(self, name, before.to(after.device))
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        if prefix + "experts" in state_dict and not self._fits(state_dict, prefix):
            if not self.reset_controller:
                experts, target = state_dict[prefix + "experts"].item(), state_dict[prefix + "target"].tolist()
                raise ValueError(
                    f"the checkpoint's controller has {experts} experts and target {target}, this one {self.num_experts} and "
                    f"{self.target.tolist()}: use the same, or reset_controller=True to start it anew"
                )
            state_dict.update({prefix + name: buffer.clone() for name, buffer in self.named_buffers()})
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    def _fits(self, state_dict: dict[str, Any], prefix: str) -> bool:
        experts, target = state_dict[prefix + "experts"], state_dict[prefix + "target"]
        same_experts = experts.item() == self.num_experts
        return same_experts and target.shape == self.target.shape and torch.allclose(target.to(self.target), self.target)


def _targets(target: float | Sequence[float], num_experts: int, num_layers: int, scope: str) -> list[float]:
    """Return the targets, one with scope ``global`` and one a layer with scope ``layer``."""
    if scope not in ("global", "layer"):
        raise ValueError(f"scope={scope!r} of the controller is unknown: use 'global' or 'layer'")
    if isinstance(target, Sequence):
        if scope == "global":
            raise ValueError("a target for each layer needs scope='layer'")
        if len(target) != num_layers:
            raise ValueError(f"{len(target)} targets for {num_layers} layers: give one, or one for each layer")
        targets = [float(value) for value in target]
    else:
        targets = [float(target)] * (1 if scope == "global" else num_layers)
    for value in targets:
        if not 1 <= value <= num_experts:
            raise ValueError(f"target={value:g} must lie between 1 and the {num_experts} experts: every token uses at least one")
    return targets


def _check(
    num_layers: int,
    kp: float,
    ki: float,
    p_init: float | str,
    p_min: float,
    p_max: float,
    theta_init: float,
    eval_p_ema: float | None,
) -> None:
    if num_layers < 1:
        raise ValueError(f"the controller needs a layer, got num_layers={num_layers}")
    for name, gain in (("kp", kp), ("ki", ki)):
        if not 0 <= gain < float("inf"):
            raise ValueError(f"gain {name}={gain} of the controller must be 0 or more")
    if not 0 < p_min < p_max <= 1:
        raise ValueError(f"the bounds of p need 0 < p_min < p_max <= 1, got {p_min} and {p_max}")
    if p_init != "auto" and (isinstance(p_init, str) or not 0 < p_init < 1):
        raise ValueError(f"p_init={p_init!r} must lie between 0 and 1, or be 'auto'")
    if theta_init <= 0:
        raise ValueError(f"theta_init={theta_init} of the controller must be positive")
    if eval_p_ema is not None and not 0 <= eval_p_ema < 1:
        raise ValueError(f"eval_p_ema={eval_p_ema} must be a decay from 0 to below 1, or None")


def _warn_unstable(gain: float, kp: float, ki: float) -> None:
    bound = gain * (2 * kp + ki)
    if bound >= 2:
        warnings.warn(
            f"gains kp={kp}, ki={ki} make p oscillate: g (2 kp + ki) = {bound:.2f} must be below 2 (g = {gain:.2f} at the start)",
            stacklevel=3,
        )
