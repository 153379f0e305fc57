"""Hallucination benchmarks of a vision-language model of transformers, steered or not."""

from pathlib import Path
from typing import Any, Literal, cast

import torch
from lightning import LightningModule

from lightning_modules.tlvs.adapter import Batch
from lightning_modules.tlvs.artifact import SteeringArtifact
from lightning_modules.tlvs.benchmarks.by_name import benchmark_metric
from lightning_modules.tlvs.extraction import TLVSExtractor
from lightning_modules.tlvs.gate import GateKind
from lightning_modules.tlvs.hf_adapter import HFVLMAdapter
from lightning_modules.tlvs.steering_method import Method, SteeringMethod


class VLMBenchmarkModule(LightningModule):
    """Answer the questions of a benchmark with the model of a folder; ``test`` scores the answers, ``predict`` only gives them.

    Greedy decoding; images go to the model through its own processor, and questions through its chat template if it has one. There
    is nothing to train, and the model is in no checkpoint. On several processes each has the whole model and its share of the
    questions.

    Args:
        folder: folder of the model and its processor, as ``save_pretrained`` writes them.
        benchmark: name of the benchmark; None takes the data's own.
        benchmark_folder: folder of its annotation files; None takes the data's own.
        method: ``none``, ``steering``, ``vista`` or ``vcd``, see :class:`~lightning_modules.tlvs.steering_method.SteeringMethod`.
        artifact: folder of a steering artifact; needed by ``steering``.
        alpha: strength.
        gate: factors of the gate; None takes those of the artifact.
        prompt: what is asked; ``{question}`` is the question, and the image comes before it.
        max_new_tokens: longest answer.
        dtype: precision of the model.
        parser: how POPE's answers are read.
        synonyms: CHAIR's table of synonyms.

    Raises:
        FileNotFoundError: if there is no such folder.
        ImportError: without transformers.
        ValueError: if steering has no artifact or one of another model, or the benchmark is unknown.
    """

    def __init__(
        self,
        folder: str,
        benchmark: str | None = None,
        benchmark_folder: str | None = None,
        method: Method = "steering",
        artifact: str | None = None,
        alpha: float = 1.0,
        gate: GateKind | None = None,
        prompt: str = "{question}",
        max_new_tokens: int = 64,
        dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16",
        parser: Literal["official", "vista", "vcd"] = "official",
        synonyms: str | None = None,
    ) -> None:
        super().__init__()
        if benchmark is None or benchmark_folder is None:
            raise ValueError("VLMBenchmarkModule needs benchmark and benchmark_folder when its data do not tell them")
        if method == "steering" and artifact is None:
            raise ValueError("method='steering' needs artifact, the folder of a calibrated artifact; or take method='none'")
        if method == "vti":
            raise ValueError("method='vti' has to learn its directions first: use SteeringMethod itself, or take vista or vcd")
        self.save_hyperparameters()
        if not Path(folder).is_dir():
            raise FileNotFoundError(f"folder: {folder} is no folder of a model: download one first, with `hf download` for example")
        self.adapter = HFVLMAdapter.from_pretrained(folder, dtype)
        self.processor = _processor(folder)
        learned = SteeringArtifact.load(artifact) if artifact else None
        layers, gate_layer = (learned.layers, learned.gate_layer) if learned else ((), 0)
        self.method = SteeringMethod(TLVSExtractor(self.adapter, layers, gate_layer=gate_layer), method, alpha)
        if learned is not None:
            self.method.load(learned, gate)
        self.prompt, self.max_new_tokens = prompt, max_new_tokens
        self.metric = benchmark_metric(benchmark, benchmark_folder, parser, synonyms=synonyms)

    def setup(self, stage: str) -> None:
        """Bring the model to the device; as it belongs to no checkpoint, Lightning does not."""
        self.adapter.model.to(self.trainer.strategy.root_device)

    def test_step(self, batch: dict[str, Any], batch_idx: int, dataloader_idx: int = 0) -> dict[str, Any]:
        """Return ``id`` and ``answer`` of each question."""
        answers = self.answer(batch)
        metric = cast(Any, self.metric)
        metric.update(answers, *(batch[key] for key in metric.batch_keys))
        return {"id": batch["id"], "answer": answers}

    def on_test_epoch_end(self) -> None:
        self.log_dict({f"test/{name}": torch.as_tensor(value).float() for name, value in self.metric.compute().items()})
        self.metric.reset()

    def predict_step(self, batch: dict[str, Any], batch_idx: int, dataloader_idx: int = 0) -> dict[str, Any]:
        """Return ``id`` and ``answer`` of each question."""
        return {"id": batch["id"], "answer": self.answer(batch)}

    def configure_optimizers(self) -> None:
        return None

    def answer(self, batch: dict[str, Any]) -> list[str]:
        """Return the model's answers to ``question`` about ``image``, PIL images or None where there is none.

        Raises:
            ValueError: if the batch has no images at all.
        """
        if "image" not in batch:
            raise ValueError("the questions come without images: give their folder with data.init_args.images")
        tokens_BT = self.method.generate(self.prompts(batch["question"], batch["image"]), self.max_new_tokens)
        return [text.strip() for text in self.processor.batch_decode(tokens_BT, skip_special_tokens=True)]

    def prompts(self, questions: list[str], images: list[Any]) -> Batch:
        """Return the inputs of the model, padded at the left."""
        texts = [self._text(question, image is not None) for question, image in zip(questions, images, strict=True)]
        shown = [image for image in images if image is not None]
        inputs = self.processor(images=shown or None, text=texts, padding=True, return_tensors="pt").to(self.device)
        dtype = self.adapter.model.dtype
        return {name: value.to(dtype) if value.is_floating_point() else value for name, value in inputs.items()}

    def _text(self, question: str, with_image: bool) -> str:
        asked = self.prompt.format(question=question)
        if getattr(self.processor, "chat_template", None):
            content = [{"type": "image"}] * with_image + [{"type": "text", "text": asked}]
            return self.processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
        return f"{self.processor.image_token}\n{asked}" if with_image else asked


def _processor(folder: str) -> Any:
    from transformers import AutoProcessor

    processor = AutoProcessor.from_pretrained(folder)
    processor.tokenizer.padding_side = "left"
    return processor
