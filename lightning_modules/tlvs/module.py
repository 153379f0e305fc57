"""Steering of the model of scenes: extraction, calibration, test."""

from collections.abc import Sequence
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torchmetrics import MeanMetric

from lightning_modules.tlvs.adapter import NullMode
from lightning_modules.tlvs.calibration import StepSum
from lightning_modules.tlvs.directions import Refinement
from lightning_modules.tlvs.extraction import CalibrationSteps, TLVSExtractor
from lightning_modules.tlvs.gate import GateKind
from lightning_modules.tlvs.scene_adapter import TinyVLMAdapter
from lightning_modules.tlvs.scene_model import scene_model
from lightning_modules.tlvs.scene_test import Batch, SceneTest
from lightning_modules.tlvs.sensitivity import Divergence
from lightning_modules.tlvs.steering_method import Method, SteeringMethod
from lightning_modules.tlvs.trace import ResponseTrace, trace_responses


class TLVSModule(SceneTest):
    r"""Find and calibrate steering vectors for the frozen model of scenes, and test it under steering.

    When fitting begins, the model runs over an epoch of the training data with and without the images; that gives the directions
    and the gate. The training steps then calibrate the vectors, and nothing else,

    .. math::
        \text{loss} = \operatorname{mean}_{s_t > \text{median}} -\log p_\text{steered}(y_t)
            + \operatorname{mean}_{s_t \le \text{median}} KL(p_t \| p_{\text{steered}, t})
            + \operatorname{mean}_\text{questions} -\log p_\text{steered}(\text{answer})

    With ``lr: 0`` they stay as they were found, with a strength of 0.1 times ``alpha``. Vectors, gate and VTI's directions are in
    the checkpoint; the model is not.

    Args:
        words: vocabulary in the order of its ids; None takes the data's own.
        object_words: names of objects in the order of their numbers; None takes the data's own.
        colour_words: names of colours in the order of their numbers; None takes the data's own.
        test_suites: names of further test sets, in the order of their loaders; None takes them from the data.
        weights: see :func:`~lightning_modules.tlvs.scene_model.scene_model`; None takes the model that comes with Leyden.
        method: see :class:`~lightning_modules.tlvs.steering_method.SteeringMethod`.
        alpha: strength.
        exact: test with the true sensitivity and entropy of each step in the place of the gate's, at three passes a word.
        sweep: further strengths with which the test is taken, under the names ``test/alpha_<strength>/...`` and
            ``test/<suite>/alpha_<strength>/...``.
        gate: factors of the gate.
        refinement: how a direction is made of the sensitive steps.
        divergence: what sensitivity is.
        null_mode: how the image is left out.
        rho: share of the steps that count as sensitive.
        layers: decoder layers that are steered; None takes all.
        gate_layer: layer that the gate reads; None takes the first steered one.
        answers: extract and calibrate on answers to questions too.
        caption_rows: samples of a global batch that captions use; questions use all.
        lr: learning rate of the calibration.

    Raises:
        ValueError: if the method is unknown, or the model has another vocabulary.

    Source: a reading of TLVS's abstract (arXiv 2606.07647).
    """

    smoke: ClassVar[dict[str, Any]] = {"caption_rows": 4}

    def __init__(
        self,
        words: Sequence[str] | None = None,
        object_words: Sequence[str] | None = None,
        colour_words: Sequence[str] | None = None,
        test_suites: Sequence[str] | None = None,
        weights: str | None = None,
        method: Method = "steering",
        alpha: float = 1.0,
        exact: bool = False,
        sweep: Sequence[float] = (),
        gate: GateKind = "both",
        refinement: Refinement = "pc1",
        divergence: Divergence = "kl",
        null_mode: NullMode = "drop",
        rho: float = 0.25,
        layers: Sequence[int] | None = None,
        gate_layer: int | None = None,
        answers: bool = True,
        caption_rows: int = 32,
        lr: float = 6e-3,
    ) -> None:
        suites = list(test_suites or ())
        swept = [name for a in sweep for name in (f"alpha_{a:g}", *(f"{suite}/alpha_{a:g}" for suite in suites))]
        super().__init__(words, object_words, colour_words, suites + swept)
        assert words is not None
        self.strengths, self.loaders = [alpha, *sweep], 1 + len(suites)
        self.save_hyperparameters()
        self.answers_too, self.caption_rows, self.lr = answers, caption_rows, lr
        adapter = TinyVLMAdapter(scene_model(words, weights))
        extractor = TLVSExtractor(adapter, layers, rho, refinement, divergence, null_mode, gate, gate_layer)
        self.method = SteeringMethod(extractor, method, alpha, exact)
        self.max_new_tokens = adapter.model.max_length - 1
        self.val_losses = nn.ModuleDict({name: MeanMetric() for name in ("sensitive", "other", "answer")})
        self.report: dict[str, float] = {}
        self.words, self.object_words = list(words), list(object_words or ())
        self.lorenz: list[float] = []

    def setup(self, stage: str) -> None:
        """Bring the model to where the vectors are; as it belongs to no checkpoint, Lightning does not.

        Raises:
            ValueError: if ``caption_rows`` cannot be shared by the processes.
        """
        self.method.adapter.model.to(self.trainer.strategy.root_device)
        if self.caption_rows < 1 or self.caption_rows % self.trainer.world_size:
            raise ValueError(
                f"caption_rows={self.caption_rows} cannot be shared by {self.trainer.world_size} processes: use a multiple of it"
            )

    def on_fit_start(self) -> None:
        """Extract directions and gate from an epoch of the training data, unless a checkpoint has brought them."""
        if self.method.extracted:
            return
        loader = self.trainer.datamodule.train_dataloader()  # type: ignore[attr-defined]
        batches = [self.trainer.strategy.batch_to_device(batch, self.device) for batch in loader]
        captions = [self._captions(batch) for batch in batches]
        parts = captions + ([batch["question"] for batch in batches] if self.answers_too else [])
        report = self.method.extract(parts, self._of_all_ranks)
        if self.method.name == "vti":
            self.method.learn_vti(captions, self.caption_prompts, self.max_new_tokens)
        self.report = {name: value for name, value in report.items() if isinstance(value, float)}
        self.lorenz = report["lorenz"]
        for name in ("snr_all", "snr_sensitive"):
            numbers = zip(self.method.extractor.layers, report[name], strict=True)
            self.report |= {f"{name}_layer{layer}": value for layer, value in numbers}

    def training_step(self, batch: dict[str, Batch], batch_idx: int) -> Tensor:
        terms = self.method.losses(self._captions(batch), batch["question"] if self.answers_too else None)
        losses = {name: self._mean(term) for name, term in terms.items()}
        self.log_dict({f"train/{name}_loss": loss.detach() for name, loss in losses.items()})
        loss = torch.stack([*losses.values()]).sum()
        self.log("train/loss", loss.detach(), prog_bar=True)
        return loss

    def validation_step(self, batch: dict[str, Batch], batch_idx: int) -> None:
        terms = self.method.losses(batch["caption"], batch["question"] if self.answers_too else None)
        for name, term in terms.items():
            cast(MeanMetric, self.val_losses[name]).update(term.mean, term.count)

    def on_validation_epoch_end(self) -> None:
        """Log each term of the loss, and their sum."""
        metrics = {name: cast(MeanMetric, metric) for name, metric in self.val_losses.items()}
        losses = {name: metric.compute() for name, metric in metrics.items() if metric.update_called}
        for metric in metrics.values():
            metric.reset()
        self.log_dict({f"val/{name}_loss": loss for name, loss in losses.items()})
        self.log("val/loss", torch.stack([*losses.values()]).sum(), prog_bar=True)

    def describe(self, batch: Batch) -> Tensor:
        """Return a caption of each image, ``[B, T]``."""
        return self.method.generate(self.caption_prompts(batch), self.max_new_tokens)

    def answer_logits(self, batch: Batch) -> Tensor:
        prompt = int(batch["prompt_length"][0])
        return self.method.next_logits(batch | {"input_ids": batch["input_ids"][:, :prompt]})

    def trace(self, batch: Batch) -> list[ResponseTrace]:
        """Return what happens at each word of the captions that are made under steering."""
        prompts = self.caption_prompts(batch)
        text_BT = torch.cat([prompts["input_ids"], self.describe(batch)], dim=1)
        method = self.method
        return trace_responses(method.adapter, prompts | {"input_ids": text_BT}, method.artifact, method.extractor.null_mode)

    def test_step(self, batch: Batch, batch_idx: int, dataloader_idx: int = 0) -> dict[str, Any]:
        """As :meth:`SceneTest.test_step`, with each strength; what is returned belongs to ``alpha``."""
        outputs = []
        for turn, strength in enumerate(self.strengths):
            self.method.alpha = strength
            outputs.append(super().test_step(batch, batch_idx, dataloader_idx + turn * self.loaders))
        self.method.alpha = self.strengths[0]
        return outputs[0]

    def on_test_epoch_end(self) -> None:
        """Log the results, and what was found when the directions were extracted."""
        super().on_test_epoch_end()
        self.log_dict({f"test/extraction/{name}": value for name, value in self.report.items()})

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["extraction_report"], checkpoint["lorenz"] = self.report, self.lorenz

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.report, self.lorenz = dict(checkpoint["extraction_report"]), list(checkpoint["lorenz"])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam([self.method.vectors_Ld], lr=self.lr)

    def _captions(self, batch: dict[str, Batch]) -> Batch:
        """Return this process's share of the captions of a step."""
        rows = self.caption_rows // self.trainer.world_size
        return {name: value[:rows] for name, value in batch["caption"].items()}

    def _mean(self, term: StepSum) -> Tensor:
        """Return the mean over the steps of all processes, such that gradients averaged over processes are right."""
        count = self.trainer.strategy.reduce(term.count.float(), reduce_op="mean")
        return term.total / count.clamp_min(1 / self.trainer.world_size)

    def _of_all_ranks(self, steps: CalibrationSteps) -> CalibrationSteps:
        if self.trainer.world_size == 1:
            return steps
        parts: list[Any] = [None] * self.trainer.world_size
        torch.distributed.all_gather_object(parts, steps)
        return CalibrationSteps.joined(parts)
