"""Router of a mixture-of-experts layer.

Legend: S tokens, N experts, d features.
"""

from __future__ import annotations

import warnings
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from lightning_modules.dtop_p.losses import mean_over_valid
from lightning_modules.dtop_p.selection import gate_weights, top_k_mask, top_p_mask

Mode = Literal["dtopp", "topp", "topk"]
NormAxis = Literal["token", "layer"]


class RoutingResult(NamedTuple):
    """What the router decides for each token.

    Attributes:
        probs: P, ``[S, N]``.
        mask: chosen experts, ``[S, N]`` bool; nothing for tokens that are not valid.
        gates: g, ``[S, N]``, 0 where nothing is chosen.
        logits: raw logits z, ``[S, N]``.
        counts: number of chosen experts, ``[S]``.
    """

    probs: Tensor
    mask: Tensor
    gates: Tensor
    logits: Tensor
    counts: Tensor


class TopPRouter(nn.Module):
    r"""Send each token to as many experts as are needed to collect the probability mass p, or to k.

    .. math::
        z = W x, \qquad
        u = \theta\, \frac{z - \operatorname{mean}(z)}{\operatorname{std}(z) + \epsilon}, \qquad
        P = \operatorname{softmax}(u), \qquad
        g = \text{gates of the chosen experts}

    The standardisation (dynamic routing normalization, DRN) has a learned scalar θ: a layer can be sharper or flatter than others.
    Mean and population standard deviation are those of a token's N logits, so a token's route depends on that token alone.

    All is computed in float32 at least, also under autocast. Neither the mask nor p carries a gradient; W and θ learn by the gates.

    Args:
        d_model: d.
        num_experts: N.
        mode: ``dtopp`` and ``topp`` choose by the mass p; they differ in what ``drn=None`` means. ``topk`` chooses k.
        k: experts a token under ``topk``.
        renormalize: make the gates of a token sum to 1.
        drn: standardise; None: only under ``dtopp``.
        norm_axis: ``layer`` divides by the root mean square, without gradient, over all tokens of the call instead of by each
            token's own standard deviation; an ablation that breaks causality.
        theta_init: initial θ.
        k_max: largest number of experts a token may use under ``dtopp`` and ``topp``.
        init_std: standard deviation of the initial W.

    Shapes:
        - x: ``[S, d]``;
        - p: a scalar tensor, so that its changes compile nothing anew; None under ``topk``;
        - valid: ``[S]`` bool, False for padding.

    Raises:
        ValueError: if an option is unknown or out of range, or p is missing or not asked for.

    Source: DTop-p (arXiv 2512.13996); the axis of the standardisation is reconstructed.
    """

    eps = 1e-6

    def __init__(
        self,
        d_model: int,
        num_experts: int,
        mode: Mode = "dtopp",
        k: int | None = None,
        renormalize: bool = True,
        drn: bool | None = None,
        norm_axis: NormAxis = "token",
        theta_init: float = 1.0,
        k_max: int | None = None,
        init_std: float = 0.02,
    ) -> None:
        super().__init__()
        drn = mode == "dtopp" if drn is None else drn
        _check(num_experts, mode, k, drn, norm_axis, theta_init, k_max, init_std)
        self.num_experts, self.mode, self.k, self.k_max = num_experts, mode, k, k_max
        self.renormalize, self.norm_axis, self.init_std = renormalize, norm_axis, init_std
        self.weight = nn.Parameter(torch.empty(num_experts, d_model))
        self.theta_init = float(theta_init)
        self.theta = nn.Parameter(torch.empty(1)) if drn else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw W anew and give θ its initial value."""
        nn.init.normal_(self.weight, std=self.init_std)
        if self.theta is not None:
            nn.init.constant_(self.theta, self.theta_init)

    @property
    def most_experts(self) -> int | None:
        """Number of experts that no token exceeds, if one was set."""
        return self.k if self.mode == "topk" else self.k_max

    def forward(self, x_Sd: Tensor, p: Tensor | float | None = None, valid_S: Tensor | None = None) -> RoutingResult:
        if (p is None) != (self.mode == "topk"):
            raise ValueError(
                f"router mode {self.mode!r} " + ("has k, it takes no threshold p" if p is not None else "needs the threshold p")
            )
        dtype = torch.promote_types(x_Sd.dtype, torch.float32)
        if self.weight.dtype == torch.float16 and not torch.compiler.is_compiling():
            warnings.warn("float16 weights of a router round its logits: keep it in float32 (16-mixed)", stacklevel=2)
        with torch.autocast(x_Sd.device.type, enabled=False):
            logits_SN = functional.linear(x_Sd.to(dtype), self.weight.to(dtype))
            probs_SN = self.scores(logits_SN, valid_S).softmax(dim=-1)
            mask_SN = self._chosen(probs_SN, p)
            if valid_S is not None:
                mask_SN = mask_SN & valid_S.unsqueeze(-1)
            gates_SN = gate_weights(probs_SN, mask_SN, self.renormalize)
        return RoutingResult(probs_SN, mask_SN, gates_SN, logits_SN, mask_SN.sum(dim=-1))

    def scores(self, logits_SN: Tensor, valid_S: Tensor | None = None) -> Tensor:
        """Return u, the standardised logits; without DRN, the logits."""
        if self.theta is None:
            return logits_SN
        centred_SN = logits_SN - logits_SN.mean(dim=-1, keepdim=True)
        if self.norm_axis == "token":
            spread = logits_SN.std(dim=-1, correction=0, keepdim=True)
        else:
            spread = mean_over_valid(centred_SN.detach().square().mean(dim=-1), valid_S).sqrt()
        return self.theta.to(logits_SN.dtype) * centred_SN / (spread + self.eps)

    def _chosen(self, probs_SN: Tensor, p: Tensor | float | None) -> Tensor:
        if p is not None:
            return top_p_mask(probs_SN, p, self.k_max)
        assert self.k is not None
        return top_k_mask(probs_SN, self.k)


def _check(
    num_experts: int,
    mode: str,
    k: int | None,
    drn: bool,
    norm_axis: str,
    theta_init: float,
    k_max: int | None,
    init_std: float,
) -> None:
    if mode not in get_args(Mode):
        raise ValueError(f"router mode {mode!r} is unknown: use one of {', '.join(get_args(Mode))}")
    if norm_axis not in get_args(NormAxis):
        raise ValueError(f"norm_axis={norm_axis!r} of a router is unknown: use 'token' or 'layer'")
    if drn and num_experts < 2:
        raise ValueError("standardised logits need at least 2 experts: give num_experts >= 2 or drn=False")
    if (k is not None) != (mode == "topk"):
        raise ValueError(f"k={k}: router mode 'topk' needs k and no other mode takes it, here it is {mode!r}")
    for name, value in (("k", k), ("k_max", k_max)):
        if value is not None and not 1 <= value <= num_experts:
            raise ValueError(f"{name}={value} of a router must lie between 1 and its {num_experts} experts")
    if mode == "topk" and k_max is not None:
        raise ValueError("router mode 'topk' has k, it takes no k_max")
    if theta_init <= 0:
        raise ValueError(f"theta_init={theta_init} of a router must be positive")
    if init_std <= 0:
        raise ValueError(f"init_std={init_std} of a router must be positive: equal logits cannot be standardised")
