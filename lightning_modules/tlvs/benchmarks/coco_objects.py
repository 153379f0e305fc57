"""What is in an image of COCO, for CHAIR."""

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lightning_modules.tlvs.benchmarks.lexicon import Lexicon

COCO_TREE = """annotations/
    instances_val2014.json
    captions_val2014.json"""


def coco_objects(
    instances: str | Path, captions: str | Path, lexicon: Lexicon, images: Iterable[int] | None = None
) -> dict[int, set[str]]:
    """Return the objects of each image: the union of what is segmented and what the reference captions mention.

    Args:
        instances: COCO's file of segmented objects.
        captions: COCO's file of captions of the same images.
        lexicon: names of objects; each category of COCO must be a word of it.
        images: numbers of the images that are wanted; default all.

    Returns:
        Names of objects by the number of the image.

    Raises:
        FileNotFoundError: if a file is missing; shows both.
        ValueError: if a file is not of COCO's format, a category is no word of the lexicon, or a wanted image has no entry.

    Source: Rohrbach et al. 2018 (arXiv 1809.02156), section 2.1.
    """
    segmented, told = _read(instances, "categories"), _read(captions, "annotations")
    names = {category["id"]: category["name"] for category in segmented["categories"]}
    unknown = sorted(name for name in names.values() if name not in lexicon.object_of)
    if unknown:
        raise ValueError(f"the lexicon has no word for COCO's categories {', '.join(unknown)}: use the table of synonyms of CHAIR")
    wanted = None if images is None else set(images)
    objects: dict[int, set[str]] = defaultdict(set)
    for known in (*segmented.get("images", ()), *told.get("images", ())):
        objects[known["id"]]  # an image with no object counts too
    for annotation in segmented["annotations"]:
        objects[annotation["image_id"]].add(lexicon.object_of[names[annotation["category_id"]]])
    for annotation in told["annotations"]:
        image = annotation["image_id"]
        if wanted is None or image in wanted:
            objects[image].update(lexicon.mentions(annotation["caption"]))
    if wanted is None:
        return dict(objects)
    missing = sorted(wanted - objects.keys())
    if missing:
        raise ValueError(
            f"image {missing[0]} is neither in {instances} nor in {captions}: use the annotations of the images' own split"
        )
    return {image: objects[image] for image in sorted(wanted)}


def _read(path: str | Path, key: str) -> dict[str, Any]:
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing; CHAIR needs two files of cocodataset.org (2014 train/val annotations):\n{COCO_TREE}"
        )
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict) or key not in content or "annotations" not in content:
        raise ValueError(f"{path} is not COCO's file: it has no {key!r}")
    return content
