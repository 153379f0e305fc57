"""Training of the tiny vision-language model on scenes."""

from collections.abc import Sequence
from typing import Any, ClassVar, cast

import torch
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from torchmetrics import MeanMetric
from torchmetrics.classification import BinaryAccuracy

from lightning_modules.tlvs.scene_captions import objects_there
from lightning_modules.tlvs.scene_test import SceneTest
from lightning_modules.tlvs.stages import Stages
from lightning_modules.tlvs.tiny_vlm import TinyVLM, response_mask

Batch = dict[str, Tensor]

BEGINNING_EVIDENCE = -4.0
"""Log-odds of an object in a patch at the begin: over 16 patches rather not there. From 0, stage 0 takes far longer to see."""


class SceneVLMModule(SceneTest):
    r"""Train :class:`~lightning_modules.tlvs.tiny_vlm.TinyVLM` to describe scenes and to answer questions about them.

    The steps go through the four stages of :class:`~lightning_modules.tlvs.stages.Stages`. Stage 0 trains the encoder, which then
    stays as it is,

    .. math::
        \text{loss} = \operatorname{BCE}\Bigl(\log \sum_n e^{W_o v_n},\; \text{objects there}\Bigr)
            + \operatorname{CE}(W_c v_n,\; \text{colour of the object in patch } n)

    with the visual tokens :math:`v_n`; the others the decoder, by the cross-entropy of the words of the response.

    A training batch holds the batches ``caption``, ``question`` and ``unbiased``, a validation batch the first two.
    :class:`~lightning_modules.tlvs.scene_test.SceneTest` says what is tested.

    Args:
        words: vocabulary in the order of its ids; None takes the data's own.
        object_words: names of objects in the order of their numbers; None takes the data's own.
        colour_words: names of colours in the order of their numbers; None takes the data's own.
        test_suites: names of further test sets, in the order of their loaders; None takes them from the data.
        d_model: width of the decoder.
        num_layers: its blocks.
        num_heads: its heads.
        max_length: most words of a text.
        stage_steps: optimiser steps of each of the four stages.
        caption_rows: samples of a global batch that steps on objects and on captions use; steps on questions use all.
        lr: learning rate at the begin of each stage.
        weight_decay: weight decay of AdamW.

    Raises:
        ValueError: if the vocabulary is unknown, or the numbers of steps do not fit.
    """

    smoke: ClassVar[dict[str, Any]] = {"stage_steps": [1, 0, 1, 1], "caption_rows": 4}

    def __init__(
        self,
        words: Sequence[str] | None = None,
        object_words: Sequence[str] | None = None,
        colour_words: Sequence[str] | None = None,
        test_suites: Sequence[str] | None = None,
        d_model: int = 64,
        num_layers: int = 3,
        num_heads: int = 4,
        max_length: int = 80,
        stage_steps: Sequence[int] = (2000, 120, 900, 1400),
        caption_rows: int = 64,
        lr: float = 2e-3,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(words, object_words, colour_words, test_suites)
        assert words is not None
        assert object_words is not None
        assert colour_words is not None
        self.save_hyperparameters()
        self.stages, self.caption_rows = Stages(stage_steps), caption_rows
        self.lr, self.weight_decay = lr, weight_decay
        ends = {"pad_id": list(words).index("<pad>"), "eos_id": list(words).index("<eos>")}
        self.model = TinyVLM(len(words), d_model, num_layers, num_heads, max_length, **ends)
        self.object_head, self.colour_head = nn.Linear(d_model, len(object_words)), nn.Linear(d_model, len(colour_words))
        nn.init.constant_(self.object_head.bias, BEGINNING_EVIDENCE)
        self.val_losses = nn.ModuleDict({lesson: MeanMetric() for lesson in ("caption", "question")})
        self.val_accuracy = BinaryAccuracy()

    def trainer_defaults(self) -> dict[str, Any]:
        """As many steps as the stages have."""
        return {"max_steps": self.stages.total}

    def setup(self, stage: str) -> None:
        """Let DDP know that a stage trains only a part of the parameters.

        Raises:
            ValueError: if ``caption_rows`` cannot be shared by the processes.
        """
        if isinstance(self.trainer.strategy, DDPStrategy):
            self.trainer.strategy._ddp_kwargs["find_unused_parameters"] = True
        if self.caption_rows < 1 or self.caption_rows % self.trainer.world_size:
            raise ValueError(
                f"caption_rows={self.caption_rows} cannot be shared by {self.trainer.world_size} processes: use a multiple of it"
            )

    def forward(self, batch: Batch) -> Tensor:
        """Return the logits of the next word at each word, ``[B, T, V]``; without ``pixels`` there is no image."""
        return self.model(batch["input_ids"], batch.get("pixels"), no_image=batch["no_image"])

    def training_step(self, batch: dict[str, Batch], batch_idx: int) -> Tensor:
        _, lesson, blind = self.stages.turn(self.trainer.global_step)
        rows = self.caption_rows // self.trainer.world_size  # row i of a process is row i * processes + rank of the whole
        if lesson == "objects":
            loss = self._object_loss(_first(batch["unbiased"], rows))
        else:
            chosen = batch["question"] if lesson == "question" else _first(batch["caption"], rows)
            if blind:
                chosen = {name: value for name, value in chosen.items() if name != "pixels"}
            total, count = self._word_loss(chosen)
            loss = total / self._mean_over_ranks(count)
        self.log(f"train/{lesson}_loss", loss.detach(), prog_bar=True, batch_size=rows)
        return loss

    def validation_step(self, batch: dict[str, Batch], batch_idx: int) -> None:
        size = len(batch["caption"]["index"])
        for lesson, metric in self.val_losses.items():
            total, count = self._word_loss(batch[lesson])
            cast(MeanMetric, metric).update(total / count, count)
        self.val_accuracy.update(self.says_yes(batch["question"]), batch["question"]["answer"])
        self.log("val/question_accuracy", self.val_accuracy, batch_size=size)

    def on_validation_epoch_end(self) -> None:
        """Log the loss of captions, that of answers, and their sum."""
        losses = {lesson: cast(MeanMetric, metric).compute() for lesson, metric in self.val_losses.items()}
        for metric in self.val_losses.values():
            cast(MeanMetric, metric).reset()
        self.log_dict({f"val/{lesson}_loss": loss for lesson, loss in losses.items()})
        self.log("val/loss", torch.stack([*losses.values()]).sum(), prog_bar=True)

    def describe(self, batch: Batch) -> Tensor:
        prompt_BT = self.caption_prompts(batch)["input_ids"]
        return self.model.generate(prompt_BT, batch["pixels"], self.model.max_length - 1, no_image=batch.get("no_image"))

    def answer_logits(self, batch: Batch) -> Tensor:
        last_B11 = (batch["prompt_length"] - 1).view(-1, 1, 1)
        logits_BTV = self(batch)
        return logits_BTV.gather(1, last_B11.expand(-1, 1, logits_BTV.shape[2])).squeeze(1)

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        # parameters that a stage does not train have no gradient, and AdamW leaves such alone
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr, weight_decay=self.weight_decay, foreach=True)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, self.stages.share)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def _object_loss(self, batch: Batch) -> Tensor:
        visual_BNd = self.model.encoder(batch["pixels"])
        logits_BK = self.object_head(visual_BNd).logsumexp(dim=1)
        there_BK = objects_there(batch["objects"], logits_BK.shape[1])
        colours_BN = _per_patch(batch["colours"], visual_BNd.shape[1])
        wrong = cross_entropy(self.colour_head(visual_BNd).flatten(0, 1), colours_BN.flatten(), ignore_index=-1, reduction="sum")
        coloured = self._mean_over_ranks((colours_BN >= 0).sum().clamp_min(1))
        return binary_cross_entropy_with_logits(logits_BK, there_BK.float()) + wrong / coloured

    def _word_loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the sum of the cross-entropies of the words of the responses, and the number of these words."""
        words_BT, prompt_B = batch["input_ids"], batch["prompt_length"]
        mask_BT = response_mask(words_BT, prompt_B, self.model.pad_id)[:, :-1]
        logits_BTV = self(batch | {"input_ids": words_BT[:, :-1]})
        loss_BT = cross_entropy(logits_BTV.transpose(1, 2), words_BT[:, 1:], reduction="none")
        return (loss_BT * mask_BT).sum(), mask_BT.sum()

    def _mean_over_ranks(self, count: Tensor) -> Tensor:
        return cast(Tensor, self.trainer.strategy.reduce(count.float(), reduce_op="mean"))


def _first(batch: Batch, rows: int) -> Batch:
    return {name: value[:rows] for name, value in batch.items()}


def _per_patch(colours_BC: Tensor, patches: int) -> Tensor:
    """Return the colour in each patch, ``[B, N]``, from that in each cell; a cell is a square of patches."""
    side = round(patches**0.5)
    cells_Bcc = colours_BC.unflatten(1, (round(colours_BC.shape[1] ** 0.5), -1))
    repeat = side // cells_Bcc.shape[1]
    return cells_Bcc.repeat_interleave(repeat, dim=1).repeat_interleave(repeat, dim=2).flatten(1)
