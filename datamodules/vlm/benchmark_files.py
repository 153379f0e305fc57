"""The official annotation files of vision-language benchmarks, read into questions in the order of the file."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DESCRIBE = "Please describe this image in detail."
COCO_IMAGES = "COCO_val2014_000000000042.jpg, …"


@dataclass(frozen=True)
class Question:
    """A question of a benchmark.

    Attributes:
        id: what the benchmark calls it.
        text: what is asked.
        image: file of the image in the folder of images; None if the question has none.
        columns: what a batch holds beside it, such as the true answer.
    """

    id: int | str
    text: str
    image: str | None
    columns: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Benchmark:
    """Where a benchmark's files lie and how they are read.

    Attributes:
        files: annotation files, as they are called in a data folder.
        read: reads them, in this order.
        images: what the folder of images holds.
        source: where files and images come from.
    """

    files: tuple[str, ...]
    read: Callable[..., list[Question]]
    images: str
    source: str


def read_pope(path: Path) -> list[Question]:
    """Read a POPE file: JSON lines, as for COCO, or one JSON list, as for GQA and A-OKVQA.

    Raises:
        ValueError: names the file and the row that is wrong.
    """
    questions = []
    for row, record in enumerate(_records(path, "question_id", "image", "text", "label")):
        if record["label"] not in ("yes", "no"):
            raise ValueError(f"{path}, row {row}: label {record['label']!r} is neither yes nor no")
        questions.append(Question(record["question_id"], record["text"], record["image"], {"label": record["label"]}))
    return questions


def read_amber(annotations: Path, *queries: Path) -> list[Question]:
    """Read AMBER's queries with their annotations, in the order of the ids.

    Raises:
        ValueError: if a query has no annotation; names the file and the id.
    """
    truth = {record["id"]: record for record in _records(annotations, "id", "type", "truth")}
    rows = [(path, record) for path in queries for record in _records(path, "id", "image", "query")]
    questions = []
    for path, record in sorted(rows, key=lambda row: row[1]["id"]):
        if record["id"] not in truth:
            raise ValueError(f"{path}: query {record['id']} has no annotation in {annotations}, both must be of one version")
        known = truth[record["id"]]
        generative = known["type"] == "generative"
        columns = (
            {"truth": known["truth"], "lures": known["hallu"]} if generative else {"label": known["truth"], "type": known["type"]}
        )
        questions.append(Question(record["id"], record["query"], record["image"], columns))
    return questions


def read_hallusionbench(path: Path) -> list[Question]:
    """Read HallusionBench; an id is ``category/subcategory/set/figure/question``."""
    parts = ("category", "subcategory", "set_id", "figure_id", "question_id")
    questions = []
    for record in _records(path, *parts, "question", "gt_answer", "visual_input", "filename"):
        name = "/".join(str(record[part]) for part in parts)
        image = record["filename"].removeprefix("./") if record["filename"] else None
        questions.append(Question(name, record["question"], image, {"record": record}))
    return questions


def read_mmhal(path: Path) -> list[Question]:
    """Read MMHal-Bench; an id is the number of the row, and an image is called as in the last part of its address."""
    records = _records(path, "question_type", "question", "image_src", "image_content", "gt_answer")
    return [Question(i, row["question"], row["image_src"].rsplit("/", 1)[-1], {"record": row}) for i, row in enumerate(records)]


def read_coco_images(captions: Path, instances: Path) -> list[Question]:
    """Ask for a description of each image of COCO, in the order of the file; an id is the number of the image.

    The images are listed in the smaller file. The other one is needed for the score.
    """
    content = json.loads(captions.read_text(encoding="utf-8"))
    if not isinstance(content, dict) or "images" not in content:
        raise ValueError(f"{captions} is not COCO's file of captions: it has no list of images")
    return [Question(image["id"], DESCRIBE, image["file_name"]) for image in content["images"]]


def _records(path: Path, *keys: str) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8")
    try:
        records = (
            json.loads(text) if text.lstrip().startswith("[") else [json.loads(line) for line in text.splitlines() if line.strip()]
        )
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is neither a JSON list nor JSON lines ({error}): get it anew") from error
    if not records:
        raise ValueError(f"{path} holds no rows: get it anew")
    for row, record in enumerate(records):
        missing = [key for key in keys if not isinstance(record, dict) or key not in record]
        if missing:
            raise ValueError(f"{path}, row {row} has no {missing[0]!r}: this is not the official file")
    return records


def _amber(*parts: str) -> Benchmark:
    files = ("vlm/amber/annotations.json", *(f"vlm/amber/query/query_{part}.json" for part in parts))
    return Benchmark(files, read_amber, "AMBER_1.jpg, …, AMBER_1004.jpg", "github.com/junyangwang0410/AMBER, folder data")


POPE_SOURCE = "github.com/RUCAIBox/POPE, folder output"
BENCHMARKS: dict[str, Benchmark] = {
    **{
        f"pope_coco_{split}": Benchmark((f"vlm/pope/coco_pope_{split}.json",), read_pope, COCO_IMAGES, f"{POPE_SOURCE}/coco")
        for split in ("random", "popular", "adversarial")
    },
    **{
        f"pope_{name}_{split}": Benchmark(
            (f"vlm/pope/{name}_pope_seem_{split}.json",), read_pope, images, f"{POPE_SOURCE}/seem/{name}"
        )
        for name, images in (("gqa", "2354786.jpg, …"), ("aokvqa", COCO_IMAGES))
        for split in ("random", "popular", "adversarial")
    },
    "amber_generative": _amber("generative"),
    "amber_existence": _amber("discriminative-existence"),
    "amber_attribute": _amber("discriminative-attribute"),
    "amber_relation": _amber("discriminative-relation"),
    "amber_discriminative": _amber("discriminative-attribute", "discriminative-existence", "discriminative-relation"),
    "hallusionbench": Benchmark(
        ("vlm/hallusionbench/HallusionBench.json",),
        read_hallusionbench,
        "VD/<subcategory>/*.png, VS/<subcategory>/*.png",
        "github.com/tianyi-lab/HallusionBench",
    ),
    "mmhal": Benchmark(
        ("vlm/mmhal/response_template.json",),
        read_mmhal,
        "7206072054_c53d53b97d_o.jpg, …",
        "huggingface.co, Shengcao1006/MMHal-Bench",
    ),
    "chair": Benchmark(
        ("vlm/chair/captions_val2014.json", "vlm/chair/instances_val2014.json"),
        read_coco_images,
        COCO_IMAGES,
        "cocodataset.org, 2014 train/val annotations",
    ),
}
"""Benchmarks by their names."""
