"""Continued training of OLMoE and Mixtral models of ``transformers`` with DTop-p routing.

Legend: B batch, T tokens of a window, S = B T tokens, L layers, N experts, d features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, distributed, nn

from lightning_modules.dtop_p.controller import ControllerInfo, Scope, SparsityController
from lightning_modules.dtop_p.experts import Dispatch, mixture
from lightning_modules.dtop_p.moe import MoEAux, check_finite, describe
from lightning_modules.dtop_p.router import TopPRouter
from lightning_modules.dtop_p.selection import top_p_mask
from lightning_modules.networks.sharding import whole


class DTopPRouting:
    """What the training loop of a converted model talks to.

    Attributes:
        controller: moves p; in training the layers tell it what they use.
        layers: the converted layers, in their order.
    """

    def __init__(self, controller: SparsityController, feeds: bool) -> None:
        self.controller, self.feeds = controller, feeds
        self.layers: list[DTopPSparseBlock] = []
        self.valid: Tensor | None = None
        self.last: dict[int, MoEAux] = {}

    @property
    def told(self) -> list[MoEAux]:
        """What the last forward pass leaves beside its output: counts of each token, and losses to be weighted and added.

        Raises:
            RuntimeError: if there was none.
        """
        if len(self.last) < len(self.layers):
            raise RuntimeError("the converted model has not seen any tokens yet")
        return [self.last[layer] for layer in range(len(self.layers))]

    @property
    def thetas(self) -> Tensor | None:
        """Learned scale of the standardised logits of each layer, ``[L]``; None without standardisation."""
        scales = [layer.gate.theta for layer in self.layers if layer.gate.theta is not None]
        return torch.cat([whole(scale.detach()) for scale in scales]) if scales else None

    def step(self, reduce: Callable[[Tensor], Tensor | None] | None = None) -> ControllerInfo:
        """Move p, once before each optimiser step: in ``on_before_optimizer_step`` of Lightning, ``on_pre_optimizer_step`` of a
        ``transformers.TrainerCallback``, or between ``backward`` and ``step`` of a loop.

        Args:
            reduce: see :meth:`SparsityController.step`; None: sums over the ranks of ``torch.distributed``, if there are any.
        """
        return self.controller.step(_sum_over_ranks if reduce is None else reduce)

    def see_mask(self, module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Remember which tokens are padding (a hook before the model's forward pass)."""
        mask = options.get("attention_mask")
        self.valid = mask.bool() if isinstance(mask, Tensor) and mask.ndim == 2 else None

    def valid_of(self, x_BTd: Tensor) -> Tensor | None:
        """Return which tokens of x are no padding, ``[B, T]``; the mask may begin with tokens that are cached."""
        return None if self.valid is None else self.valid[:, -x_BTd.shape[1] :].to(x_BTd.device)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"last": {}, "valid": None}  # tensors with a graph cannot be copied


class DTopPSparseBlock(nn.Module):
    """A sparse block of ``transformers`` whose tokens use as many experts as the router wants.

    Its parameters are those of the block, under their names ``gate.weight``, ``experts.gate_up_proj`` and ``experts.down_proj``;
    new is ``gate.theta``.

    Args:
        block: the block that gives its experts.
        gate: the router.
        routing: what all layers share.
        dispatch: how tokens reach their experts.

    Shapes: ``[B, T, d]`` to the same.
    """

    def __init__(self, block: Any, gate: TopPRouter, routing: DTopPRouting, dispatch: Dispatch) -> None:
        super().__init__()
        self.gate, self.experts, self.dispatch = gate, block.experts, dispatch
        self.routing, self.layer = routing, len(routing.layers)
        routing.layers.append(self)

    def forward(self, hidden_states: Tensor) -> Tensor:
        x_Sd = hidden_states.flatten(0, -2)
        controller, valid = self.routing.controller, self.routing.valid_of(hidden_states)
        valid_S = None if valid is None else valid.flatten()
        routing = self.gate(x_Sd, controller.current(self.layer), valid_S)
        check_finite(routing.logits, valid_S, self.dispatch, f"layer {self.layer}")
        told = self.routing.last[self.layer] = describe(routing, hidden_states.shape[:-1], valid_S)
        if self.routing.feeds:
            controller.observe(self.layer, told.counts, valid)
        w_in, w_out = self.experts.gate_up_proj.transpose(1, 2), self.experts.down_proj.transpose(1, 2)
        y_Sd = mixture(x_Sd, routing.mask, routing.gates, w_in, w_out, self._activation, self.dispatch, self.gate.most_experts)
        return y_Sd.view(hidden_states.shape).to(hidden_states.dtype)

    def _activation(self, h_2f: Tensor) -> Tensor:
        gate_f, value_f = h_2f.chunk(2, dim=-1)
        return self.experts.act_fn(gate_f) * value_f


def convert_topk_to_dtopp(
    hf_model: Any,
    target: float | Sequence[float] | None = None,
    *,
    drn: bool = True,
    renormalize: bool | None = None,
    theta_init: float = 1.0,
    calibration: Tensor | None = None,
    kp: float = 0.3,
    ki: float = 0.02,
    p_init: float | Literal["auto"] = "auto",
    scope: Scope = "global",
    k_max: int | None = None,
    dispatch: Dispatch = "grouped",
    controller: SparsityController | None = None,
) -> DTopPRouting:
    r"""Let the tokens of an OLMoE or Mixtral model use as many experts as they need, ``target`` in the mean, and go on training.

    The model is changed in place: each sparse block becomes a :class:`DTopPSparseBlock` with the same parameters, and the model
    gets ``dtopp_controller`` (a :class:`SparsityController`, whose p is saved with the model) and ``dtopp``, what is returned here.
    Attention, embeddings, generation and saving stay what they were. Tokens that ``attention_mask`` calls padding use no expert.

    ::

        dtopp = convert_topk_to_dtopp(model, calibration=tokens)
        loss = model(tokens, labels=tokens).loss + 1e-4 * torch.stack([layer.load_balance for layer in dtopp.told]).mean()
        loss.backward()
        dtopp.step()
        optimizer.step()

    To reload: build the model from its config, convert it with the same arguments (but ``calibration``), ``load_state_dict``.

    The balance loss of ``transformers`` counts a fixed number of experts, so ``output_router_logits`` is turned off: use ``told``.

    Args:
        hf_model: a model of ``transformers`` 5 with ``OlmoeSparseMoeBlock`` or ``MixtralSparseMoeBlock``.
        target: T, mean number of active experts; with ``scope="layer"`` also one for each layer; None: what the model has used.
        drn: standardise the router's logits.
        renormalize: make the gates of a token sum to 1; None: as the model does (Mixtral does, OLMoE-1B-7B does not).
        theta_init: initial scale of the standardised logits.
        calibration: token ids ``[B, T]`` on which the model, as it was, is run once: each θ begins as the mean standard deviation
            of its layer's logits, and p such that ``target`` experts are active, so that the model begins near where it stood.
        kp: proportional gain.
        ki: integral gain.
        p_init: p at the start.
        scope: ``global``: one p; ``layer``: one a layer.
        k_max: largest number of experts a token may use.
        dispatch: how tokens reach their experts, see :class:`~lightning_modules.dtop_p.experts.Experts`.
        controller: one that the caller owns, saves and feeds with ``told``; it replaces the four arguments about it.

    Raises:
        ImportError: without ``transformers`` 5.
        ValueError: if the model has no such block, or is converted already, its routers add noise, the target is out of range, or
            options do not fit together.

    Source: DTop-p (arXiv 2512.13996) for the routing; continued training is not in the paper.
    """
    places = _sparse_blocks(hf_model)
    first = places[0][2]
    num_experts, used = first.gate.num_experts, first.gate.top_k
    target = float(used) if target is None else target
    owned = controller is not None
    if controller is None:
        controller = SparsityController(num_experts, target, len(places), kp, ki, p_init, scope, theta_init=theta_init)
    if controller.num_experts != num_experts or controller.num_layers != len(places):
        raise ValueError(
            f"the controller has {controller.num_layers} layers of {controller.num_experts} experts, "
            f"the model {len(places)} of {num_experts}: give it those of the model"
        )
    routing = DTopPRouting(controller, feeds=not owned)
    gates = [
        _router(
            block.gate, drn, getattr(block.gate, "norm_topk_prob", True) if renormalize is None else renormalize, theta_init, k_max
        )
        for _, _, block in places
    ]
    if calibration is not None:
        _calibrate(hf_model, calibration, gates, controller)
    for (parent, name, block), gate in zip(places, gates, strict=True):
        setattr(parent, name, DTopPSparseBlock(block, gate, routing, dispatch).train(block.training))
    if not owned:
        hf_model.dtopp_controller = controller.to(first.gate.weight.device).train(hf_model.training)
    hf_model.config.output_router_logits = False
    hf_model.dtopp = routing
    hf_model.register_forward_pre_hook(routing.see_mask, with_kwargs=True)
    return routing


def _sparse_blocks(hf_model: nn.Module) -> list[tuple[nn.Module, str, Any]]:
    """Return the sparse blocks in their order, each with the module that holds it and its name there."""
    try:
        from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock
        from transformers.models.olmoe.modeling_olmoe import OlmoeSparseMoeBlock
    except ImportError as error:
        raise ImportError("converting a model needs transformers 5: pip install 'leyden[llm]'") from error
    name = type(hf_model).__name__
    if any(isinstance(module, DTopPSparseBlock) for module in hf_model.modules()):
        raise ValueError(f"this {name} has DTop-p routing already")
    kinds = (OlmoeSparseMoeBlock, MixtralSparseMoeBlock)
    places = [
        (parent, child_name, child)
        for parent in hf_model.modules()
        for child_name, child in parent.named_children()
        if isinstance(child, kinds)
    ]
    if not places:
        raise ValueError(f"{name} has no gates to convert: give an OLMoE or Mixtral model of transformers")
    if not hasattr(places[0][2].experts, "gate_up_proj"):
        raise ImportError("converting a model needs transformers 5, whose experts are stacked: pip install 'leyden[llm]'")
    if any(getattr(block, "jitter_noise", 0) > 0 for _, _, block in places):
        raise ValueError("the routers of this model add noise, which DTop-p does not: set config.router_jitter_noise=0 first")
    return places


def _router(gate: Any, drn: bool, renormalize: bool, theta_init: float, k_max: int | None) -> TopPRouter:
    """Return a router with the matrix of ``gate`` itself."""
    num_experts, d_model = gate.weight.shape
    with torch.device("meta"):
        router = TopPRouter(d_model, num_experts, renormalize=renormalize, drn=drn, theta_init=theta_init, k_max=k_max)
    router.weight = gate.weight
    if router.theta is not None:
        dtype = torch.promote_types(gate.weight.dtype, torch.float32)
        router.theta = nn.Parameter(torch.full((1,), theta_init, dtype=dtype, device=gate.weight.device))
    return router


@torch.no_grad()
def _calibrate(hf_model: Any, tokens_BT: Tensor, gates: Sequence[TopPRouter], controller: SparsityController) -> None:
    """Give θ and p the values with which the unconverted model's own logits have ``target`` experts active."""
    training = hf_model.training
    logits = [layer_SN.float() for layer_SN in hf_model.eval()(tokens_BT, output_router_logits=True).router_logits]
    hf_model.train(training)
    probs = []
    for gate, logits_SN in zip(gates, logits, strict=True):
        if gate.theta is not None:
            gate.theta.fill_(logits_SN.std(dim=-1, correction=0).mean())
        probs.append(gate.scores(logits_SN).softmax(dim=-1))
    groups = [torch.cat(probs)] if controller.scope == "global" else probs
    controller.starts = [
        _threshold(probs_SN, target, controller) for probs_SN, target in zip(groups, controller.targets, strict=True)
    ]
    controller.reset_parameters()


def _threshold(probs_SN: Tensor, target: float, controller: SparsityController) -> float:
    """Return, by bisection, the p with which ``target`` experts are active in the mean."""
    low, high = controller.p_min, controller.p_max
    for _ in range(30):
        middle = (low + high) / 2
        active = top_p_mask(probs_SN, middle).sum(dim=-1).float().mean().item()
        low, high = (middle, high) if active < target else (low, middle)
    return high


def _sum_over_ranks(seen_2L: Tensor) -> Tensor:
    if distributed.is_available() and distributed.is_initialized():
        distributed.all_reduce(seen_2L)
    return seen_2L
