"""From a folder with a model to scores: extract, calibrate, save, load, steer."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from PIL import Image

transformers = pytest.importorskip("transformers", reason="models of transformers need the extra leyden[llm]")

from datamodules.vlm.benchmark import BenchmarkDataModule  # noqa: E402
from lightning_modules.tlvs.adapter import Batch  # noqa: E402
from lightning_modules.tlvs.benchmark_module import VLMBenchmarkModule  # noqa: E402
from lightning_modules.tlvs.extraction import TLVSExtractor  # noqa: E402
from lightning_modules.tlvs.steering_method import SteeringMethod  # noqa: E402
from tests.lightning_modules.tlvs.tiny_llava import WORDS, save_tiny_llava  # noqa: E402

OBJECTS = ("dog", "cat", "car", "cup", "tree", "boat")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    """A model and its processor."""
    path = tmp_path_factory.mktemp("llava")
    save_tiny_llava(path)
    return path


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory: Any) -> Path:
    """A data folder with the questions of POPE about six images, and these images."""
    root = tmp_path_factory.mktemp("data")
    (root / "vlm" / "pope").mkdir(parents=True)
    rows = []
    for number, name in enumerate(OBJECTS):
        colour = (40 * number, 255 - 40 * number, 90)
        Image.new("RGB", (8, 8), colour).save(root / f"{number}.png")
        row = {
            "question_id": number,
            "image": f"{number}.png",
            "text": f"is there a {name} ?",
            "label": "yes" if number % 2 else "no",
        }
        rows.append(json.dumps(row))
    name = BenchmarkDataModule("pope_coco_random").benchmark.files[0]
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text("\n".join(rows) + "\n")
    return root


def module_of(folder: Path, benchmark: Path, **options: Any) -> tuple[VLMBenchmarkModule, BenchmarkDataModule]:
    data = BenchmarkDataModule("pope_coco_random", root=str(benchmark), images=str(benchmark), batch_size=3)
    settings = {"dtype": "float32", "max_new_tokens": 3, "method": "none", **options}
    return VLMBenchmarkModule(str(folder), "pope_coco_random", str(data.benchmark_folder), **settings), data


def answered(module: VLMBenchmarkModule, data: BenchmarkDataModule) -> tuple[list[str], dict[str, float]]:
    quiet: Any = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    trainer = Trainer(**quiet)
    batches: Any = trainer.predict(module, datamodule=data)
    (scores,) = trainer.test(module, datamodule=data, verbose=False)
    return [answer for batch in batches for answer in batch["answer"]], dict(scores)


def taught(module: VLMBenchmarkModule, response: str) -> Batch:
    """Return prompts about the six images with a response given."""
    images = [Image.new("RGB", (8, 8), (40 * number, 255 - 40 * number, 90)) for number in range(6)]
    prompts = module.prompts([f"is there a {name} ?" for name in OBJECTS], images)
    words = torch.tensor([WORDS.index(word) for word in response.split()]).expand(6, -1)
    nothing = torch.full_like(prompts["input_ids"], -100)
    return prompts | {
        "input_ids": torch.cat([prompts["input_ids"], words], dim=1),
        "attention_mask": torch.cat([prompts["attention_mask"], torch.ones_like(words)], dim=1),
        "labels": torch.cat([nothing, words], dim=1),
    }


def test_extract_calibrate_save_load_steer(folder: Path, benchmark: Path, tmp_path: Path):
    plain, data = module_of(folder, benchmark)
    answers, scores = answered(plain, data)
    assert len(answers) == 6
    said_yes = [("no" not in answer.split() and "not" not in answer.split()) for answer in answers]
    assert scores["test/accuracy"] == pytest.approx(sum(yes == bool(row % 2) for row, yes in enumerate(said_yes)) / 6)

    method = SteeringMethod(TLVSExtractor(plain.adapter))
    captions, questions = taught(plain, "there is a dog and a cat and a car ."), taught(plain, "no there is no")
    report = method.extract([captions, questions])
    losses = method.calibrate([captions], [questions], steps=30, lr=0.1)
    assert losses[-1] < losses[0]
    method.artifact.save(tmp_path)
    saved = json.loads((tmp_path / "steering.json").read_text())
    assert saved["identity"] == plain.adapter.identity()
    assert report["steps"] == 6 * (11 + 4)  # words of the caption and of the answer

    steered, data = module_of(folder, benchmark, method="steering", artifact=str(tmp_path), alpha=3.0)
    assert torch.equal(steered.method.vectors_Ld, method.vectors_Ld)
    changed, _ = answered(steered, data)
    assert changed != answers
    untouched, data = module_of(folder, benchmark, method="steering", artifact=str(tmp_path), alpha=0.0)
    assert answered(untouched, data)[0] == answers


@pytest.mark.parametrize("method", ["vcd", "vista"])
def test_other_methods_answer_too(folder: Path, benchmark: Path, method: str):
    answers, scores = answered(*module_of(folder, benchmark, method=method, alpha=5.0))
    assert len(answers) == 6
    assert 0 <= scores["test/yes_ratio"] <= 1
    assert answers != answered(*module_of(folder, benchmark))[0]


def test_questions_without_image_are_asked_as_text(folder: Path, benchmark: Path):
    module, _ = module_of(folder, benchmark)
    image = Image.new("RGB", (8, 8))
    batch = {"question": ["is there a dog ?", "is there a cat ?"], "image": [image, None]}
    alone = {"question": batch["question"][1:], "image": [None]}
    assert module.answer(batch)[1] == module.answer(alone)[0]


def test_bad_input(folder: Path, benchmark: Path):
    for options, message in (
        ({"method": "steering"}, "artifact"),
        ({"method": "vti"}, "vista or vcd"),
    ):
        with pytest.raises(ValueError, match=message):
            module_of(folder, benchmark, **options)
    with pytest.raises(FileNotFoundError, match="download"):
        module_of(folder / "nowhere", benchmark)
    with pytest.raises(ValueError, match="when its data do not tell"):
        VLMBenchmarkModule(str(folder))
    module, _ = module_of(folder, benchmark)
    with pytest.raises(ValueError, match="images"):
        module.answer({"question": ["is there a dog ?"]})
