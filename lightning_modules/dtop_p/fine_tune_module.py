"""Continued training of a mixture of experts of ``transformers`` with DTop-p routing, as a LightningModule."""

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from lightning_modules.dtop_p.controller import Scope
from lightning_modules.dtop_p.convert import convert_topk_to_dtopp
from lightning_modules.dtop_p.experts import Dispatch
from lightning_modules.dtop_p.routed_module import RoutedModule


class MoEFineTuneModule(RoutedModule):
    r"""Next-token prediction by an OLMoE or Mixtral model whose Top-k routing becomes DTop-p; the task's loss is
    :math:`-\log P(\text{next token})`.

    A checkpoint needs the folder again, for the shape of the model. ``network.save_pretrained`` writes what ``transformers`` reads,
    as a Top-k model.

    Args:
        folder: folder of a model that ``save_pretrained`` wrote; ``random``: a tiny untrained OLMoE, to try the machinery.
        vocab_size: tokens of the data, which must not exceed those of the model; None takes the data's own.
        target: T, mean number of active experts; None: what the model has used.
        drn: standardise the router's logits.
        renormalize: make the gates of a token sum to 1; None: as the model does.
        theta_init: initial scale of the standardised logits.
        kp: proportional gain.
        ki: integral gain; about 0.2 for runs below 2000 steps and 0.02 above 20000.
        p_init: p at the start; ``auto`` is the closed form for standardised logits.
        scope: ``global``: one p; ``layer``: one a layer.
        load_balance: weight of the balance loss.
        entropy: weight of the entropy loss.
        router_z: weight of the z-loss.
        dispatch: how tokens reach their experts.
        lr: learning rate after the warm-up; it falls along a cosine to a tenth at ``trainer.max_steps``.
        weight_decay: weight decay of matrices.
        warmup_share: share of the steps with a rising learning rate.
        reset_controller: start the controller anew from a checkpoint with another T.

    Raises:
        ImportError: without ``transformers`` 5.
        ValueError: if the data have more tokens than the model, or the model cannot be converted.
    """

    smoke: ClassVar[dict[str, Any]] = {"folder": "random"}

    def __init__(
        self,
        folder: str,
        vocab_size: int | None = None,
        target: float | None = None,
        drn: bool = True,
        renormalize: bool | None = None,
        theta_init: float = 1.0,
        kp: float = 0.3,
        ki: float = 0.02,
        p_init: float | Literal["auto"] = "auto",
        scope: Scope = "global",
        load_balance: float = 1e-4,
        entropy: float = 1e-3,
        router_z: float = 0.0,
        dispatch: Dispatch = "grouped",
        lr: float = 4e-5,
        weight_decay: float = 0.1,
        warmup_share: float = 0.05,
        reset_controller: bool = False,
    ) -> None:
        network = pretrained(folder, vocab_size)
        config = network.config
        if vocab_size is not None and vocab_size > config.vocab_size:
            raise ValueError(f"the data have {vocab_size} tokens, the model in {folder} {config.vocab_size}: use its own tokenizer")
        super().__init__(
            d_model=config.hidden_size,
            num_layers=config.num_hidden_layers,
            num_experts=config.num_local_experts,
            target=float(config.num_experts_per_tok) if target is None else target,
            expert_hidden=config.intermediate_size,
            theta_init=theta_init,
            kp=kp,
            ki=ki,
            p_init=p_init,
            scope=scope,
            load_balance=load_balance,
            entropy=entropy,
            router_z=router_z,
            lr=lr,
            weight_decay=weight_decay,
            warmup_share=warmup_share,
            reset_controller=reset_controller,
        )
        self.network = network
        self.converted = convert_topk_to_dtopp(
            network, drn=drn, renormalize=renormalize, theta_init=theta_init, dispatch=dispatch, controller=self.controller
        )

    @property
    def blocks(self) -> nn.ModuleList:
        return self.network.model.layers

    @property
    def thetas(self) -> Tensor | None:
        return self.converted.thetas

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Return the logits of each next token, ``[B, T, V]``."""
        return self.network(tokens_BT, use_cache=False).logits

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        loss = self._loss(batch)
        self.log("train/loss", loss.detach(), prog_bar=True)
        return loss + self.auxiliary(self.converted.told)

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> dict[str, Tensor]:
        """Return ``counts``, the experts that each token used, ``[L, B, T]``."""
        return self._evaluate(batch, "val")

    def test_step(self, batch: dict[str, Tensor], batch_idx: int) -> dict[str, Tensor]:
        """As :meth:`validation_step`."""
        return self._evaluate(batch, "test")

    def _loss(self, batch: dict[str, Tensor]) -> Tensor:
        tokens_BT = batch["tokens"]
        return nn.functional.cross_entropy(self(tokens_BT[:, :-1]).flatten(0, 1).float(), tokens_BT[:, 1:].flatten())

    def _evaluate(self, batch: dict[str, Tensor], stage: str) -> dict[str, Tensor]:
        loss = self._loss(batch)
        counts_LBT = torch.stack([told.counts for told in self.converted.told])
        return self.evaluated(stage, loss, batch["tokens"][:, 1:].numel(), counts_LBT)


def pretrained(folder: str, vocab_size: int | None = None) -> Any:
    """Return the model in a folder, in float32; with ``random``, a tiny untrained OLMoE with so many tokens.

    Raises:
        ImportError: without ``transformers``.
        ValueError: if a random model is asked for without its number of tokens.
    """
    try:
        from transformers import AutoModelForCausalLM, OlmoeConfig, OlmoeForCausalLM
    except ImportError as error:
        raise ImportError("models of transformers need transformers 5: pip install 'leyden[llm]'") from error
    if folder != "random":
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    if vocab_size is None:
        raise ValueError("folder='random' needs vocab_size when the data do not tell it")
    sizes: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
    ids: dict[str, Any] = {"pad_token_id": None, "eos_token_id": None}
    return OlmoeForCausalLM(OlmoeConfig(vocab_size=vocab_size, num_experts=8, num_experts_per_tok=2, **sizes, **ids))
