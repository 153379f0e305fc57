"""A language model whose feed-forward layers are mixtures of experts, as a LightningModule."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from lightning_modules.dtop_p.moe import MoEAux
from lightning_modules.dtop_p.routed_module import RoutedModule
from lightning_modules.networks.transformer import Decoder


class MoELanguageModule(RoutedModule):
    r"""Next-token prediction by a decoder with a mixture of experts in every block; the task's loss is
    :math:`-\log P(\text{next token})`.

    Args:
        vocab_size: tokens; None takes the data's own.
        num_heads: heads of the attention.
        num_kv_heads: heads of keys and values; None: as many.
        checkpointing: compute blocks anew in the backward pass to save memory.
        **options: those of :class:`RoutedModule`.

    Raises:
        ValueError: if the vocabulary is unknown, or options do not fit together.

    Source: DTop-p (arXiv 2512.13996).
    """

    smoke: ClassVar[dict[str, Any]] = {
        "d_model": 32,
        "num_layers": 2,
        "num_heads": 2,
        "num_experts": 8,
        "expert_hidden": 16,
        "target": 2,
    }

    def __init__(
        self,
        vocab_size: int | None = None,
        num_heads: int = 4,
        num_kv_heads: int | None = None,
        checkpointing: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if vocab_size is None:
            raise ValueError("MoELanguageModule needs vocab_size when its data do not tell it")
        sizes = (vocab_size, self.d_model, self.num_layers, num_heads)
        self.decoder = Decoder(*sizes, self.feed_forward, num_kv_heads, checkpointing=checkpointing)

    @property
    def blocks(self) -> nn.ModuleList:
        return self.decoder.blocks

    def forward(self, tokens_BT: Tensor, documents_BT: Tensor | None = None) -> Tensor:
        """Return the logits of each next token, ``[B, T, V]``."""
        return self._run(tokens_BT, documents_BT)[0]

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        loss, layers = self._predict(batch)
        self.log("train/loss", loss.detach(), prog_bar=True)
        return loss + self.auxiliary(layers)

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

    def _run(self, tokens_BT: Tensor, documents_BT: Tensor | None = None) -> tuple[Tensor, list[MoEAux]]:
        return self.decoder(tokens_BT, self.thresholds(), documents_BT)

    def _predict(self, batch: dict[str, Tensor]) -> tuple[Tensor, list[MoEAux]]:
        """Return the mean cross-entropy of the next tokens, a scalar, and what the layers told."""
        logits_BTV, layers = self._run(*_inputs(batch))
        return nn.functional.cross_entropy(logits_BTV.flatten(0, 1), batch["tokens"][:, 1:].flatten()), layers

    def _evaluate(self, batch: dict[str, Tensor], stage: str) -> dict[str, Tensor]:
        loss, layers = self._predict(batch)
        counts_LBT = torch.stack([aux.counts for aux in layers]) if self.routed else None
        return self.evaluated(stage, loss, batch["tokens"][:, 1:].numel(), counts_LBT)


def _inputs(batch: dict[str, Tensor]) -> tuple[Tensor, Tensor | None]:
    """Return the tokens that are read and, if there are any, the numbers of their documents."""
    documents = batch.get("documents")
    return batch["tokens"][:, :-1], None if documents is None else documents[:, :-1]
