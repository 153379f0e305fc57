"""A language model whose feed-forward layers are mixtures of experts, as a LightningModule."""

from typing import Any, Literal

import torch
from lightning import LightningModule
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torchmetrics import MeanMetric

from lightning_modules.dtop_p.controller import ControllerInfo, Scope, SparsityController
from lightning_modules.dtop_p.experts import Dispatch
from lightning_modules.dtop_p.metrics import ActiveExperts, ExpertFLOPs, flops_matched
from lightning_modules.dtop_p.moe import MoEAux, MoEFeedForward
from lightning_modules.dtop_p.router import NormAxis
from lightning_modules.networks.swiglu import SwiGLU
from lightning_modules.networks.transformer import Decoder
from lightning_modules.optimizer import adamw

Routing = Literal["dtopp", "topp", "topk", "dense"]


class MoELanguageModule(LightningModule):
    r"""Next-token prediction by a decoder with a mixture of experts in every block.

    .. math::
        \text{loss} = -\log P(\text{next token})
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

    Args:
        vocab_size: tokens; None takes the data's own.
        d_model: width d.
        num_layers: blocks L.
        num_heads: heads of the attention.
        num_kv_heads: heads of keys and values; None: as many.
        num_experts: N.
        target: T, mean number of active experts; with ``scope: layer`` also one for each layer.
        expert_hidden: hidden width f of an expert.
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
        checkpointing: compute blocks anew in the backward pass to save memory.
        lr: learning rate after the warm-up; it falls along a cosine to a tenth at ``trainer.max_steps``.
        weight_decay: weight decay of matrices.
        warmup_share: share of the steps with a rising learning rate.
        reset_controller: start the controller anew from a checkpoint with another N or T.

    Raises:
        ValueError: if the vocabulary is unknown, or options do not fit together.

    Source: DTop-p (arXiv 2512.13996).
    """

    active_total: Tensor

    def __init__(
        self,
        vocab_size: int | None = None,
        d_model: int = 64,
        num_layers: int = 4,
        num_heads: int = 4,
        num_kv_heads: int | None = None,
        num_experts: int = 16,
        target: float | list[float] = 4.0,
        expert_hidden: int = 32,
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
        checkpointing: bool = False,
        lr: float = 3e-3,
        weight_decay: float = 0.1,
        warmup_share: float = 0.05,
        reset_controller: bool = False,
    ) -> None:
        super().__init__()
        if vocab_size is None:
            raise ValueError("MoELanguageModule needs vocab_size when its data do not tell it")
        if routing in ("topk", "dense") and (isinstance(target, list) or target != int(target)):
            raise ValueError(
                f"routing={routing!r} uses the same number of experts everywhere: target={target} must be a whole number"
            )
        self.save_hyperparameters()
        self.lr, self.weight_decay, self.warmup_share = lr, weight_decay, warmup_share
        self.weights = {"load_balance": load_balance, "entropy": entropy, "router_z": router_z}

        def feed_forward(layer: int) -> nn.Module:
            if routing == "dense":
                assert not isinstance(target, list)
                return SwiGLU(d_model, int(target) * expert_hidden)
            return MoEFeedForward(
                d_model,
                expert_hidden,
                num_experts,
                routing,
                k=int(target) if routing == "topk" and not isinstance(target, list) else None,
                renormalize=renormalize,
                drn=drn,
                norm_axis=norm_axis,
                theta_init=theta_init,
                dispatch=dispatch,
                lb_sync=lb_sync,
                name=f"layer {layer}",
            )

        self.decoder = Decoder(vocab_size, d_model, num_layers, num_heads, feed_forward, num_kv_heads, checkpointing=checkpointing)
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
        self.routed = routing != "dense"
        self.num_experts = num_experts
        self.target = float(sum(target) / len(target)) if isinstance(target, list) else float(target)
        self.register_buffer("active_total", torch.zeros(2, dtype=torch.float64))
        self.control: ControllerInfo | None = None
        self._controlled_at = -1
        self.losses = nn.ModuleDict({stage: MeanMetric() for stage in ("val_", "test_")})
        if self.routed:
            self.active = nn.ModuleDict({stage: ActiveExperts(num_layers) for stage in ("val_", "test_")})
            self.flops = nn.ModuleDict({stage: ExpertFLOPs(num_layers, d_model, expert_hidden) for stage in ("val_", "test_")})

    def forward(self, tokens_BT: Tensor, documents_BT: Tensor | None = None) -> Tensor:
        """Return the logits of each next token, ``[B, T, V]``."""
        return self._run(tokens_BT, documents_BT)[0]

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        loss, layers = self._predict(batch)
        self.log("train/loss", loss.detach(), prog_bar=True)
        if self.controller is not None:
            for layer, aux in enumerate(layers):
                self.controller.observe(layer, aux.counts)
        for name, weight in self.weights.items() if self.routed else ():
            term = torch.stack([getattr(aux, name) for aux in layers]).mean()
            self.log(f"train/{name}", term.detach())
            loss = loss + weight * term
        return loss

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
        layers = [block.feed_forward for block in self.decoder.blocks]
        scales: list[Tensor] = [
            layer.router.theta for layer in layers if isinstance(layer, MoEFeedForward) and layer.router.theta is not None
        ]
        return torch.cat(scales).detach() if scales else None

    @property
    def mean_active(self) -> Tensor:
        """Mean over all optimiser steps of the number of active experts, a scalar."""
        return self.active_total[0] / self.active_total[1]

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> dict[str, Tensor]:
        """Return ``counts``, the experts that each token used, ``[L, B, T]``; nothing without a mixture."""
        return self._evaluate(batch, "val")

    def test_step(self, batch: dict[str, Tensor], batch_idx: int) -> dict[str, Tensor]:
        """As :meth:`validation_step`."""
        return self._evaluate(batch, "test")

    def predict_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        """Return the log-likelihood of each token after the first, ``[B, T - 1]``."""
        logits_BTV, _ = self._run(*_inputs(batch))
        return -nn.functional.cross_entropy(logits_BTV.transpose(1, 2), batch["tokens"][:, 1:], reduction="none")

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        steps = self.trainer.max_steps
        return adamw(
            self.parameters(),
            self.lr,
            self.weight_decay,
            warmup_steps=round(self.warmup_share * max(steps, 0)),
            min_lr_ratio=0.1,
            max_steps=steps,
            max_epochs=self.trainer.max_epochs,
            betas=(0.9, 0.95),
            decay_vectors=False,
        )

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile the blocks, which all have the same shape."""
        for block in self.decoder.blocks:
            block.compile(*args, **kwargs)

    def _run(self, tokens_BT: Tensor, documents_BT: Tensor | None = None) -> tuple[Tensor, list[MoEAux]]:
        arguments = None
        if self.controller is not None:
            arguments = [(self.controller.current(layer),) for layer in range(len(self.decoder.blocks))]
        return self.decoder(tokens_BT, arguments, documents_BT)

    def _predict(self, batch: dict[str, Tensor]) -> tuple[Tensor, list[MoEAux]]:
        """Return the mean cross-entropy of the next tokens, a scalar, and what the layers told."""
        logits_BTV, layers = self._run(*_inputs(batch))
        return nn.functional.cross_entropy(logits_BTV.flatten(0, 1), batch["tokens"][:, 1:].flatten()), layers

    def _evaluate(self, batch: dict[str, Tensor], stage: str) -> dict[str, Tensor]:
        loss, layers = self._predict(batch)
        mean: Any = self.losses[f"{stage}_"]
        mean.update(loss, batch["tokens"][:, 1:].numel())
        self.log(f"{stage}/loss", mean, prog_bar=stage == "val")
        if not self.routed:
            return {}
        counts_LBT = torch.stack([aux.counts for aux in layers])
        active: Any = self.active[f"{stage}_"]
        flops: Any = self.flops[f"{stage}_"]
        active.update(counts_LBT)
        flops.update(counts_LBT)
        self.log(f"{stage}/expert_flops", flops)
        return {"counts": counts_LBT}

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


def _inputs(batch: dict[str, Tensor]) -> tuple[Tensor, Tensor | None]:
    """Return the tokens that are read and, if there are any, the numbers of their documents."""
    documents = batch.get("documents")
    return batch["tokens"][:, :-1], None if documents is None else documents[:, :-1]
