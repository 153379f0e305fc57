import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from datamodules import BenchmarkDataModule
from datamodules.roots import find_data
from datamodules.vlm.benchmark_files import BENCHMARKS

needs_files = pytest.mark.skipif(find_data("vlm") is None, reason="no vlm in LEYDEN_DATA or the cache folder")

SIZES = {
    "pope_coco_random": 3000,
    "pope_coco_popular": 3000,
    "pope_coco_adversarial": 3000,
    "amber_generative": 1004,
    "amber_existence": 4924,
    "amber_attribute": 7628,
    "amber_relation": 1664,
    "amber_discriminative": 14216,
    "hallusionbench": 1129,
    "mmhal": 96,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with five questions on three images, the third of which is missing."""
    monkeypatch.delenv("LEYDEN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    labels = ["yes", "no", "yes", "no", "yes"]
    rows = [
        {"question_id": 10 + i, "image": f"{i // 2}.png", "text": f"Is there a {i}?", "label": label}
        for i, label in enumerate(labels)
    ]
    (tmp_path / "vlm" / "pope").mkdir(parents=True)
    (tmp_path / "vlm" / "pope" / "coco_pope_random.json").write_text("\n".join(map(json.dumps, rows)) + "\n")
    (tmp_path / "vlm" / "pope" / "gqa_pope_seem_random.json").write_text(json.dumps(rows, indent=1))
    (tmp_path / "images").mkdir()
    for i in range(2):
        Image.fromarray(np.full((2, 3), 100 * i, dtype=np.uint8)).save(tmp_path / "images" / f"{i}.png")
    return tmp_path


def ready(folder: Path, **settings) -> BenchmarkDataModule:
    data = BenchmarkDataModule(**({"root": str(folder), "batch_size": 2} | settings))
    data.setup("test")
    return data


@pytest.mark.parametrize("name", ["pope_coco_random", "pope_gqa_random"])  # JSON lines and one list
def test_batches_are_in_the_order_of_the_file(folder: Path, name: str):
    data = ready(folder, name=name, images=str(folder / "images"), limit=4)
    batches = list(data.test_dataloader())
    assert [batch["id"] for batch in batches] == [[10, 11], [12, 13]]
    assert data.ids == [10, 11, 12, 13]
    assert torch.equal(batches[1]["index"], torch.tensor([2, 3]))
    assert batches[1]["question"] == ["Is there a 2?", "Is there a 3?"]
    assert batches[1]["label"] == ["yes", "no"]
    assert [image.getpixel((0, 0)) for image in batches[1]["image"]] == [(100, 100, 100)] * 2
    assert batches[0]["image"][0].size == (3, 2)
    assert data.model_arguments() == {"benchmark": name, "benchmark_folder": str(folder / "vlm" / "pope")}


def test_images_are_opened_when_they_are_needed(folder: Path):
    data = ready(folder, images=str(folder / "images"), transform=np.array)
    loader = iter(data.predict_dataloader())
    assert next(loader)["image"][0].shape == (2, 3, 3)
    with pytest.raises(FileNotFoundError, match=r"the image 2.png is missing\n(.*\n)*.*COCO_val2014_000000000042.jpg"):
        list(loader)
    without = ready(folder)
    assert [batch["image_file"] for batch in without.test_dataloader()] == [["0.png", "0.png"], ["1.png", "1.png"], ["2.png"]]
    assert all("image" not in batch for batch in without.test_dataloader())


def test_a_random_part(folder: Path):
    data = ready(folder, limit=3, limit_seed=1)
    rows = torch.cat([batch["index"] for batch in data.test_dataloader()]).tolist()
    assert rows == sorted(rows)
    assert len(set(rows)) == 3
    assert rows != [0, 1, 2]
    assert [10 + row for row in rows] == data.ids
    assert ready(folder, limit=3, limit_seed=1).ids == data.ids
    assert ready(folder, limit=50, limit_seed=1).ids == [10, 11, 12, 13, 14]


def test_ranks_share_the_questions(folder: Path):
    found: list[int] = []
    for rank in range(2):
        data = ready(folder, batch_size=4)
        device = torch.device("cpu")
        data.trainer = SimpleNamespace(  # type: ignore[assignment]
            global_rank=rank, world_size=2, overfit_batches=0, strategy=SimpleNamespace(root_device=device)
        )
        ids = [name for batch in data.test_dataloader() for name in batch["id"]]
        assert ids == sorted(ids)
        found += ids
    assert sorted(found) == [10, 11, 12, 13, 14]


@needs_files
@pytest.mark.parametrize("name", SIZES)
def test_official_files(name: str):
    missing = [file for file in BENCHMARKS[name].files if find_data(file) is None]
    if missing:
        pytest.skip(f"no {missing[0]} in LEYDEN_DATA or the cache folder")
    data = BenchmarkDataModule(name, batch_size=64)
    data.setup("test")
    assert len(data.ids) == len(set(data.ids)) == SIZES[name]
    batch = next(iter(data.test_dataloader()))
    assert len(batch["question"]) == len(batch["index"]) >= 48
    if name.startswith("pope"):
        assert batch["image_file"][0] == "COCO_val2014_000000310196.jpg"
        assert batch["label"][:2] == ["yes", "no"]
    elif name == "amber_discriminative":
        assert data.ids == list(range(1005, 15221))
        assert batch["type"][0] == "discriminative-attribute-state"
        assert batch["label"][0] in ("yes", "no")
    elif name == "amber_generative":
        assert batch["truth"][0] == ["sky", "forest", "grass", "person", "lake", "mountain", "road"]
        assert batch["lures"][0] == ["cloud", "sun", "bird", "dog", "flower"]
    elif name == "hallusionbench":
        images = [question.image for question in data.test_set.questions]
        assert images.count(None) == 178
        assert images[4] == "VS/chart/0_1.png"
        assert data.ids[4] == "VS/chart/0/1/0"
    elif name == "mmhal":
        assert batch["image_file"][0] == "7206072054_c53d53b97d_o.jpg"
        assert batch["record"][1]["question_type"] == "adversarial"


def test_missing_files_show_the_tree(folder: Path):
    data = BenchmarkDataModule("amber_generative", root=str(folder))
    (folder / "vlm" / "amber").mkdir()
    (folder / "vlm" / "amber" / "annotations.json").write_text("[]")
    with pytest.raises(FileNotFoundError) as error:
        data.setup("test")
    text = str(error.value)
    assert "vlm/amber/annotations.json\n" in text
    assert "vlm/amber/query/query_generative.json    <- missing" in text
    assert "AMBER_1.jpg" in text
    assert "github.com/junyangwang0410/AMBER" in text
    assert str(folder) in text
    with pytest.raises(FileNotFoundError, match="is no folder\n.*expects these files"):
        ready(folder, images=str(folder / "none"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"question_id": 1, "image": "a", "text": "b"}', "row 0 has no 'label'"),
        ('{"question_id": 1, "image": "a", "text": "b", "label": "maybe"}', "row 0: label 'maybe'"),
        ('{"question_id": 1', "neither a JSON list nor JSON lines"),
        ("", "holds no rows"),
        ("[1]", "row 0 has no 'question_id'"),
    ],
)
def test_damaged_files(folder: Path, text: str, message: str):
    (folder / "vlm" / "pope" / "coco_pope_random.json").write_text(text)
    with pytest.raises(ValueError, match=f"coco_pope_random.json.*{message}"):
        ready(folder)


def test_amber_files_of_two_versions(folder: Path):
    (folder / "vlm" / "amber" / "query").mkdir(parents=True)
    truth = [{"id": 1, "type": "generative", "truth": ["dog"], "hallu": []}]
    (folder / "vlm" / "amber" / "annotations.json").write_text(json.dumps(truth))
    queries = [{"id": 2, "image": "AMBER_2.jpg", "query": "Describe this image."}]
    (folder / "vlm" / "amber" / "query" / "query_generative.json").write_text(json.dumps(queries))
    with pytest.raises(ValueError, match="query 2 has no annotation"):
        ready(folder, name="amber_generative")


def test_bad_settings(folder: Path):
    with pytest.raises(ValueError, match="'pope' is no benchmark, use one of pope_coco_random"):
        BenchmarkDataModule("pope")
    with pytest.raises(ValueError, match="limit=0 must be positive"):
        BenchmarkDataModule(limit=0)
    with pytest.raises(ValueError, match="nothing to train on"):
        ready(folder).train_dataloader()
    with pytest.raises(ValueError, match="no validation set"):
        ready(folder).val_dataloader()
