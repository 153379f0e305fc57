"""Mixture-of-experts layer: router, experts, and what losses, controller and figures need to know of a call.

Legend: S tokens, N experts, d features.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from lightning_modules.dtop_p.experts import Activation, Dispatch, Experts
from lightning_modules.dtop_p.losses import assignment_share, entropy_loss, load_balance_loss, router_z_loss
from lightning_modules.dtop_p.router import Mode, NormAxis, RoutingResult, TopPRouter


class MoEAux(NamedTuple):
    """What a call of the layer leaves beside its output.

    Attributes:
        counts: experts used by each token, of the shape of the input without its last axis; 0 for tokens that are not valid.
        load: share of all assignments that each expert got, ``[N]``.
        load_balance: see :func:`losses.load_balance_loss`.
        entropy: see :func:`losses.entropy_loss`.
        router_z: see :func:`losses.router_z_loss`.
    """

    counts: Tensor
    load: Tensor
    load_balance: Tensor
    entropy: Tensor
    router_z: Tensor


class MoEFeedForward(nn.Module):
    """Feed-forward layer of which each token uses a few experts.

    The layer counts, but keeps no state: whoever owns the controller hands its p in and observes ``aux.counts``.

    Args:
        d_model: features d.
        d_hidden: hidden width f of an expert.
        num_experts: N.
        mode: how experts are chosen, see :class:`~lightning_modules.dtop_p.router.TopPRouter`.
        k: experts a token under mode ``topk``.
        renormalize: make the gates of a token sum to 1.
        drn: standardise the router's logits; None: only under ``dtopp``.
        norm_axis: axis of that.
        theta_init: initial scale of the standardised logits.
        k_max: largest number of experts a token may use under ``dtopp`` and ``topp``.
        dispatch: how tokens reach their experts, see :class:`~lightning_modules.dtop_p.experts.Experts`.
        activation: ``swiglu`` or ``gelu``.
        init_std: standard deviation of the initial weights.
        residual_scale: factor on it for the experts' output weights.
        lb_sync: in training, take the load in the balance loss over all ranks.
        name: what messages call the layer.

    Shapes:
        - x: ``[..., d]``;
        - p: a scalar tensor; None under ``topk``;
        - valid: bool of the shape of x without its last axis, False for padding, whose output is 0;
        - output: ``[..., d]`` and :class:`MoEAux`.

    Raises:
        ValueError: if an option is unknown or out of range, ``valid`` has another shape, p is missing or not asked for, or logits
            are not finite. The last is looked for on CPUs and with the dispatches that wait for the device anyhow, outside of
            compiled graphs.
    """

    def __init__(
        self,
        d_model: int,
        d_hidden: int,
        num_experts: int,
        mode: Mode = "dtopp",
        k: int | None = None,
        renormalize: bool = True,
        drn: bool | None = None,
        norm_axis: NormAxis = "token",
        theta_init: float = 1.0,
        k_max: int | None = None,
        dispatch: Dispatch = "grouped",
        activation: Activation = "swiglu",
        init_std: float = 0.02,
        residual_scale: float = 1.0,
        lb_sync: bool = False,
        name: str = "mixture-of-experts layer",
    ) -> None:
        super().__init__()
        self.router = TopPRouter(d_model, num_experts, mode, k, renormalize, drn, norm_axis, theta_init, k_max, init_std)
        most_experts = self.router.most_experts
        self.experts = Experts(d_model, d_hidden, num_experts, activation, dispatch, most_experts, init_std, residual_scale)
        self.lb_sync, self.name = lb_sync, name

    def forward(self, x: Tensor, p: Tensor | float | None = None, valid: Tensor | None = None) -> tuple[Tensor, MoEAux]:
        if valid is not None and valid.shape != x.shape[:-1]:
            raise ValueError(f"valid of {self.name} has shape {list(valid.shape)}, its tokens {list(x.shape[:-1])}")
        x_Sd = x.flatten(0, -2)
        valid_S = None if valid is None else valid.flatten().bool()
        routing = self.router(x_Sd, p, valid_S)
        check_finite(routing.logits, valid_S, self.experts.dispatch, self.name)
        y_Sd = self.experts(x_Sd, routing.mask, routing.gates)
        return y_Sd.view(x.shape), describe(routing, x.shape[:-1], valid_S, self.lb_sync and self.training)


def describe(routing: RoutingResult, shape: torch.Size, valid_S: Tensor | None = None, lb_sync: bool = False) -> MoEAux:
    """Return what losses, controller and figures need to know of a call.

    Args:
        routing: what the router decided.
        shape: that of the tokens, whose product is S.
        valid_S: False for padding.
        lb_sync: take the load in the balance loss over all ranks.
    """
    share_N = assignment_share(routing.mask, lb_sync)
    return MoEAux(
        routing.counts.view(shape),
        share_N,
        load_balance_loss(routing.probs, share_N, valid_S),
        entropy_loss(routing.probs, valid_S),
        router_z_loss(routing.logits, valid_S),
    )


def check_finite(logits_SN: Tensor, valid_S: Tensor | None, dispatch: Dispatch, name: str) -> None:
    """Look at the logits where that costs nothing: on CPUs, and with a dispatch that waits for the device anyhow.

    Raises:
        ValueError: if logits of valid tokens are not finite.
    """
    waits = dispatch in ("grouped", "loop")
    if torch.compiler.is_compiling() or not (waits or logits_SN.device.type == "cpu"):
        return
    finite_S = logits_SN.isfinite().all(dim=-1)
    if not (finite_S if valid_S is None else finite_S | ~valid_S).all():
        raise ValueError(f"router of {name} got logits that are not finite: lower the learning rate or clip gradients")
