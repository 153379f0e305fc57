"""What all models with routed feed-forward layers share, as a LightningModule."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from lightning import LightningModule
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torchmetrics import MeanMetric

from lightning_modules.dtop_p.controller import ControllerInfo, Scope, SparsityController
from lightning_modules.dtop_p.experts import Activation, Dispatch
from lightning_modules.dtop_p.metrics import ActiveExperts, ExpertFLOPs, flops_matched
from lightning_modules.dtop_p.moe import MoEAux, MoEFeedForward
from lightning_modules.dtop_p.router import NormAxis
from lightning_modules.networks.gelu import GELUFeedForward
from lightning_modules.networks.sharding import shard, whole
from lightning_modules.networks.swiglu import SwiGLU
from lightning_modules.optimizer import adamw

Routing = Literal["dtopp", "topp", "topk", "dense"]
DENSE: dict[str, Callable[[int, int], nn.Module]] = {"swiglu": SwiGLU, "gelu": GELUFeedForward}


class RoutedModule(LightningModule, ABC):
    r"""A model of L blocks whose feed-forward layers are mixtures of experts.

    .. math::
        \text{loss} = \text{task}
            + \frac1L \sum_l \lambda_\text{lb} L_\text{lb} + \lambda_\text{dyn} L_\text{dyn} + \lambda_z L_z

    ========= ============================================================================================
    routing   what decides how many experts a token uses
    ========= ============================================================================================
    dtopp     probability mass p of standardised logits; p is controlled such that ``target`` are used
    topp      probability mass p of raw logits; ``kp: 0, ki: 0`` keeps p fixed, other gains control it
    topk      always ``target``
    dense     no router: one network as wide as ``target`` experts
    ========= ============================================================================================

    The controller moves p once an optimiser step, by the counts of all micro-batches and ranks: from ``on_before_optimizer_step``,
    or just before that from a ``DTopPCallback``.

    A subclass builds its network with :meth:`feed_forward`, names its ``blocks``, hands :meth:`thresholds` to the layers, adds
    :meth:`auxiliary` to its loss in training and tells :meth:`evaluated` what it measured.

    Args:
        d_model: width d.
        num_layers: blocks L.
        num_experts: N.
        target: T, mean number of active experts; with ``scope: layer`` also one for each layer.
        expert_hidden: hidden width f of an expert.
        activation: ``swiglu`` or ``gelu`` experts.
        routing: see above.
        drn: standardise the router's logits; None: only for ``dtopp``.
        norm_axis: axis of that, see :class:`~lightning_modules.dtop_p.router.TopPRouter`.
        renormalize: make the gates of a token sum to 1.
        theta_init: initial scale of the standardised logits.
        kp: proportional gain.
        ki: integral gain; about 0.2 for runs below 2000 steps and 0.02 above 20000.
        p_init: p at the start; ``auto`` is the closed form for standardised logits.
        scope: ``global``: one p; ``layer``: one a layer.
        load_balance: weight :math:`\lambda_\text{lb}`.
        entropy: weight :math:`\lambda_\text{dyn}`.
        router_z: weight :math:`\lambda_z`.
        lb_sync: take the load in the balance loss over all ranks.
        dispatch: how tokens reach their experts.
        lr: learning rate after the warm-up; it falls along a cosine to a tenth at ``trainer.max_steps``.
        weight_decay: weight decay of matrices.
        warmup_share: share of the steps with a rising learning rate.
        reset_controller: start the controller anew from a checkpoint with another N or T.

    Raises:
        ValueError: if options do not fit together.

    Source: DTop-p (arXiv 2512.13996).
    """

    active_total: Tensor

    def __init__(
        self,
        d_model: int = 64,
        num_layers: int = 4,
        num_experts: int = 16,
        target: float | list[float] = 4.0,
        expert_hidden: int = 32,
        activation: Activation = "swiglu",
        routing: Routing = "dtopp",
        drn: bool | None = None,
        norm_axis: NormAxis = "token",
        renormalize: bool = True,
        theta_init: float = 1.0,
        kp: float = 0.3,
        ki: float = 0.2,
        p_init: float | Literal["auto"] = "auto",
        scope: Scope = "global",
        load_balance: float = 1e-4,
        entropy: float = 1e-3,
        router_z: float = 0.0,
        lb_sync: bool = False,
        dispatch: Dispatch = "grouped",
        lr: float = 3e-3,
        weight_decay: float = 0.1,
        warmup_share: float = 0.05,
        reset_controller: bool = False,
    ) -> None:
        super().__init__()
        everywhere = int(target) if not isinstance(target, list) and target == int(target) else None
        if routing in ("topk", "dense") and everywhere is None:
            raise ValueError(
                f"routing={routing!r} uses the same number of experts everywhere: target={target} must be a whole number"
            )
        if activation not in DENSE:
            raise ValueError(f"activation {activation!r} is unknown: use one of {', '.join(DENSE)}")
        self.save_hyperparameters()
        self.d_model, self.num_layers, self.num_experts = d_model, num_layers, num_experts
        self.target = float(sum(target) / len(target)) if isinstance(target, list) else float(target)
        self.routed = routing != "dense"
        self.lr, self.weight_decay, self.warmup_share = lr, weight_decay, warmup_share
        self.weights = {"load_balance": load_balance, "entropy": entropy, "router_z": router_z}
        if routing == "dense":
            assert everywhere is not None
            self._layer: partial[Any] = partial(DENSE[activation], d_model, everywhere * expert_hidden)
        else:
            self._layer = partial(
                MoEFeedForward,
                d_model,
                expert_hidden,
                num_experts,
                routing,
                k=everywhere if routing == "topk" else None,
                renormalize=renormalize,
                drn=drn,
                norm_axis=norm_axis,
                theta_init=theta_init,
                dispatch=dispatch,
                activation=activation,
                lb_sync=lb_sync,
            )
        self.controller: SparsityController | None = None
        if routing in ("dtopp", "topp"):
            self.controller = SparsityController(
                num_experts,
                target,
                num_layers,
                kp,
                ki,
                p_init,
                scope,
                theta_init=theta_init,
                reset_controller=reset_controller,
            )
        self.register_buffer("active_total", torch.zeros(2, dtype=torch.float64))
        self.control: ControllerInfo | None = None
        self._controlled_at = -1
        stages = ("val_", "test_")
        self.losses = nn.ModuleDict({stage: MeanMetric() for stage in stages})
        if self.routed:
            self.active = nn.ModuleDict({stage: ActiveExperts(num_layers) for stage in stages})
            self.flops = nn.ModuleDict({stage: ExpertFLOPs(num_layers, d_model, expert_hidden, activation) for stage in stages})

    def feed_forward(self, layer: int) -> nn.Module:
        """Build the feed-forward layer of a block."""
        return self._layer(name=f"layer {layer}") if self.routed else self._layer()

    @property
    @abstractmethod
    def blocks(self) -> nn.ModuleList:
        """The blocks, each with its ``feed_forward``, which all have the same shape."""

    def thresholds(self) -> list[tuple[Tensor]] | None:
        """Return the further argument of each feed-forward layer: its p. None without a controller."""
        return None if self.controller is None else [(self.controller.current(layer),) for layer in range(self.num_layers)]

    def auxiliary(self, layers: list[MoEAux]) -> Tensor | float:
        """Return the weighted auxiliary losses of a training step, a scalar, log them, and let the controller count.

        Args:
            layers: what each layer told.
        """
        if self.controller is not None:
            for layer, aux in enumerate(layers):
                self.controller.observe(layer, aux.counts)
        total: Tensor | float = 0.0
        for name, weight in self.weights.items() if self.routed else ():
            term = torch.stack([getattr(aux, name) for aux in layers]).mean()
            self.log(f"train/{name}", term.detach())
            total = total + weight * term
        return total

    def configure_model(self) -> None:
        """Shard what has parameters, block by block, under a strategy that asks for it."""
        if self.device_mesh is not None:
            for child in self.children():
                if any(True for _ in child.parameters()):
                    shard(child, self.blocks, self.device_mesh)

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        self.move_threshold()

    def move_threshold(self) -> ControllerInfo | None:
        """Let the controller act, at most once in an optimiser step; return what it did, None if there is none or it has acted."""
        step = self.trainer.global_step
        if self.controller is None or self._controlled_at == step:
            return None
        self._controlled_at = step
        info = self.control = self.controller.step(self._sum_over_ranks)
        seen = info.active.isfinite()
        self.active_total += torch.stack([torch.where(seen, info.active, 0.0), seen.double()])
        self.log_dict({"train/active": info.active.float(), "train/active_mean": self.mean_active.float()})
        return info

    @property
    def thetas(self) -> Tensor | None:
        """Learned scale of the standardised logits of each layer, ``[L]``; None without standardisation."""
        layers = [block.feed_forward for block in self.blocks]
        scales: list[Tensor] = [
            layer.router.theta for layer in layers if isinstance(layer, MoEFeedForward) and layer.router.theta is not None
        ]
        return torch.cat([whole(scale.detach()) for scale in scales]) if scales else None

    @property
    def mean_active(self) -> Tensor:
        """Mean over all optimiser steps of the number of active experts, a scalar."""
        return self.active_total[0] / self.active_total[1]

    def evaluated(
        self, stage: str, loss: Tensor, weight: Tensor | float, counts: Tensor | None, weight_S: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Add a batch to the metrics of a stage and log those that are ready; return ``counts``, or nothing without a mixture.

        Args:
            stage: ``val`` or ``test``.
            loss: mean loss of the batch, or one loss each of its parts.
            weight: how much that counts, of the same shape or a number.
            counts: experts used by each token in each layer, ``[L, ...]``.
            weight_S: how much each token counts, of the shape of one layer; None: all the same.
        """
        mean: Any = self.losses[f"{stage}_"]
        mean.update(loss, weight)
        self.log(f"{stage}/loss", mean, prog_bar=stage == "val")
        if counts is None:
            return {}
        active: Any = self.active[f"{stage}_"]
        flops: Any = self.flops[f"{stage}_"]
        active.update(counts, weight_S)
        flops.update(counts, weight_S)
        self.log(f"{stage}/expert_flops", flops)
        return {"counts": counts}

    def on_validation_epoch_end(self) -> None:
        if self.routed:
            self._log_active("val")

    def on_test_epoch_end(self) -> None:
        """Log the mean number of active experts in test and training, and whether both are what was asked for."""
        if not self.routed:
            return
        active = float(self._log_active("test"))
        trained = self.mean_active.item() if self.controller is not None else self.target
        self.log_dict({"test/train_active": trained, "test/flops_matched": float(flops_matched(self.target, trained, active))})

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        return adamw(
            self.parameters(),
            self.lr,
            self.weight_decay,
            warmup_share=self.warmup_share,
            min_lr_ratio=0.1,
            max_steps=self.trainer.max_steps,
            max_epochs=self.trainer.max_epochs,
            betas=(0.9, 0.95),
            decay_vectors=False,
        )

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile the blocks, which all have the same shape."""
        for block in self.blocks:
            block.compile(*args, **kwargs)

    def _log_active(self, stage: str) -> Tensor:
        """Log the active experts of each layer, their mean, which is returned, and the mean deviation over tokens."""
        metric: Any = self.active[f"{stage}_"]
        found = metric.compute()
        metric.reset()
        active = found["mean"].mean()
        self.log_dict({f"{stage}/active": active, f"{stage}/active_std": found["std"].mean()})
        self.log_dict({f"{stage}/active_layer{layer}": value for layer, value in enumerate(found["mean"])})
        return active

    def _sum_over_ranks(self, seen_2L: Tensor) -> Tensor:
        return self.trainer.strategy.reduce(seen_2L, reduce_op="sum")
