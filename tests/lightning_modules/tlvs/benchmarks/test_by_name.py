import json
from pathlib import Path

import pytest
from lightning import LightningModule, Trainer
from PIL import Image
from torchmetrics import Metric

from datamodules import BenchmarkDataModule
from datamodules.base import BatchKey
from datamodules.roots import find_data
from datamodules.vlm.benchmark_files import BENCHMARKS
from lightning_modules.tlvs.benchmarks import benchmark_metric

KINDS = {
    "pope_coco_popular": "POPE",
    "amber_generative": "AMBERGenerative",
    "amber_attribute": "AMBERDiscriminative",
    "amber_discriminative": "AMBERDiscriminative",
    "hallusionbench": "HallusionBench",
    "mmhal": "MMHal",
}


@pytest.mark.skipif(find_data("vlm") is None, reason="no vlm in LEYDEN_DATA or the cache folder")
@pytest.mark.parametrize("name", KINDS)
def test_each_metric_takes_the_batches_of_its_benchmark(name: str):
    data = BenchmarkDataModule(name, batch_size=4)
    if any(find_data(file) is None for file in BENCHMARKS[name].files):
        pytest.skip(f"no {BENCHMARKS[name].files} in LEYDEN_DATA or the cache folder")
    data.setup("test")
    metric = benchmark_metric(name, data.benchmark_folder, judge=(lambda record, answer: "Rating: 2 correct"))
    assert type(metric).__name__ == KINDS[name]
    for number, batch in enumerate(data.test_dataloader()):
        answers = ["No"] * len(batch["question"])
        metric.update(answers, *(batch[key] for key in metric.batch_keys))
        if number == 2:
            break
    assert all(value.ndim == 0 for value in metric.compute().values())


def test_chair_reads_its_folder(tmp_path: Path):
    folder = tmp_path / "vlm" / "chair"
    folder.mkdir(parents=True)
    images = [{"id": 5, "file_name": "five.jpg"}, {"id": 6, "file_name": "six.jpg"}]
    categories = [{"id": 1, "name": "dog"}]
    instances = {"images": images, "categories": categories, "annotations": [{"image_id": 6, "category_id": 1}]}
    (folder / "instances_val2014.json").write_text(json.dumps(instances))
    (folder / "captions_val2014.json").write_text(json.dumps({"images": images, "annotations": []}))
    (folder / "synonyms.txt").write_text("dog, puppy\ncat\n")
    data = BenchmarkDataModule("chair", root=str(tmp_path))
    data.setup("test")
    metric = benchmark_metric("chair", data.benchmark_folder)
    batch = data.test_set[BatchKey(0, 0, data.test_set.rows, slice(None))]
    assert batch["image_file"] == ["five.jpg", "six.jpg"]
    metric.update(["a puppy", "puppies"], *(batch[key] for key in metric.batch_keys))
    assert metric.compute()["chair_i"] == 0.5


def test_bad_names_and_folders(tmp_path: Path):
    with pytest.raises(ValueError, match="'vqa' is unknown, use one of pope"):
        benchmark_metric("vqa", tmp_path)
    with pytest.raises(ValueError, match="without a judge"):
        benchmark_metric("mmhal", tmp_path)
    with pytest.raises(FileNotFoundError, match="tianyi-lab/HallusionBench"):
        benchmark_metric("hallusionbench", tmp_path)


class SaysYes(LightningModule):
    """Answers every question with yes and scores itself."""

    def __init__(self, metric: Metric) -> None:
        super().__init__()
        self.metric = metric

    def test_step(self, batch: dict, batch_idx: int) -> None:
        assert all(image.mode == "RGB" for image in batch["image"])
        self.metric.update(["Yes"] * len(batch["question"]), *(batch[key] for key in self.metric.batch_keys))

    def on_test_epoch_end(self) -> None:
        self.log_dict({f"test/{name}": value for name, value in self.metric.compute().items()})


def test_a_trainer_tests_on_a_benchmark(tmp_path: Path):
    (tmp_path / "vlm" / "pope").mkdir(parents=True)
    labels = ["yes", "no", "yes"]
    rows = [{"question_id": i, "image": "a.png", "text": "Is there a dog?", "label": label} for i, label in enumerate(labels)]
    (tmp_path / "vlm" / "pope" / "coco_pope_random.json").write_text("\n".join(map(json.dumps, rows)))
    Image.new("L", (2, 2)).save(tmp_path / "a.png")
    data = BenchmarkDataModule("pope_coco_random", root=str(tmp_path), images=str(tmp_path), batch_size=2)
    trainer = Trainer(accelerator="cpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False)
    scores = trainer.test(SaysYes(benchmark_metric(data.name, data.benchmark_folder)), data, verbose=False)[0]
    assert scores["test/accuracy"] == pytest.approx(2 / 3)
    assert scores["test/yes_ratio"] == 1
