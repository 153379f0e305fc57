import json
import math
from pathlib import Path

import pytest
import torch

from lightning_modules.tlvs.benchmarks import CHAIR, Lexicon, coco_objects

TABLE = """\
person, man, woman, baby, adult, people
car, automobile
motorcycle, scooter,  motor bike
dog, puppy
hot dog
cat, kitten
elephant
chair, seat
toilet, urinal
tie, bow, bow tie
wine glass
dining table, table
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "synonyms.txt").write_text(TABLE)
    return tmp_path / "synonyms.txt"


@pytest.fixture
def lexicon(table: Path) -> Lexicon:
    return Lexicon.read(table)


@pytest.mark.parametrize(
    ("caption", "objects"),
    [
        ("A baby elephant", ["elephant"]),
        ("the toilet seat", ["toilet"]),
        ("the seat of the toilet", ["toilet"]),
        ("a seat in a car", ["chair", "car"]),
        ("Two hot dogs and a dog.", ["hot dog", "dog"]),
        ("a bow tie", ["tie"]),
        ("three wine glasses on a dining table", ["wine glass", "dining table"]),
        ("women, men and puppies", ["person", "person", "dog"]),
        (
            "a motor bike, a scooter",
            ["motorcycle"],
        ),  # the second blank in the table hides the double word, as in the official script
        ("hot chocolate", []),
        ("", []),
    ],
)
def test_mentions(lexicon: Lexicon, caption: str, objects: list[str]):
    assert lexicon.mentions(caption) == objects


def test_by_hand():
    metric = CHAIR(Lexicon.closed(["dog", "cat", "car", "person"]))
    metric.update(["dog cat dog", "car"], [{"dog"}, {"car", "person"}])
    scores = {name: value.item() for name, value in metric.compute().items()}
    # four mentions, one absent; two of three objects found; precision 3/4
    expected = {"chair_i": 1 / 4, "chair_s": 1 / 2, "recall": 2 / 3, "f1": 2 * 0.75 * (2 / 3) / (0.75 + 2 / 3), "length": 2}
    assert scores == pytest.approx(expected, abs=1e-6)


def test_an_empty_caption_counts():
    metric = CHAIR(Lexicon.closed(["dog", "cat"]))
    metric.update(["", "cat"], [["dog"], ["dog"]])
    scores = metric.compute()
    assert scores["chair_s"] == 0.5
    assert scores["recall"] == 0
    assert scores["chair_i"] == 1
    silent = CHAIR(Lexicon.closed(["dog"]))
    silent.update([""], [["dog"]])
    assert math.isnan(silent.compute()["chair_i"])
    assert silent.compute()["chair_s"] == 0


def test_scene_world():
    lexicon = Lexicon.closed(["circle", "star", "bus"])
    assert lexicon.names(torch.tensor([[-1, 0, 2], [1, 1, -1]])) == [{"circle", "bus"}, {"star"}]
    assert lexicon.mentions("there is a star that is red and a bus that is blue .") == ["star", "bus"]
    assert lexicon.mentions("stars") == []  # a closed vocabulary has no plural
    metric = CHAIR(lexicon)
    metric.update(["a star", "a star and a circle"], lexicon.names(torch.tensor([[1, -1], [1, 2]])))
    assert metric.compute()["chair_i"].item() == pytest.approx(1 / 3)


def test_tables_of_all_kinds_agree(lexicon: Lexicon, tmp_path: Path):
    (tmp_path / "chair.py").write_text(f"import not_installed\nraise SystemExit\nsynonyms_txt = '''\n{TABLE}'''\n")
    script = Lexicon.read(tmp_path / "chair.py")
    assert script.object_of == lexicon.object_of
    assert script.double_words == lexicon.double_words
    (tmp_path / "table.json").write_text(json.dumps({"dog": ["puppy"], "hot dog": []}))
    own = Lexicon.read(tmp_path / "table.json")
    assert own.mentions("puppies eat hot dogs") == ["dog", "hot dog"]
    assert own.objects == ["dog", "hot dog"]


def test_another_singular(table: Path):
    lexicon = Lexicon.read(table, singularise=lambda word: word.removesuffix("s"))
    assert lexicon.mentions("a wine glass") == ["wine glass"]  # glas, as some packages make of it


@pytest.fixture
def coco(tmp_path: Path) -> tuple[Path, Path]:
    images = [{"id": 7, "file_name": "seven.jpg"}, {"id": 8, "file_name": "eight.jpg"}, {"id": 9, "file_name": "nine.jpg"}]
    instances = {
        "images": images,
        "categories": [{"id": 1, "name": "person"}, {"id": 3, "name": "car"}],
        "annotations": [{"image_id": 7, "category_id": 3}, {"image_id": 7, "category_id": 3}, {"image_id": 8, "category_id": 1}],
    }
    captions = {
        "images": images,
        "annotations": [{"image_id": 7, "caption": "A man with hot dogs."}, {"image_id": 9, "caption": "Nothing at all"}],
    }
    files = tmp_path / "instances_val2014.json", tmp_path / "captions_val2014.json"
    for file, content in zip(files, (instances, captions), strict=True):
        file.write_text(json.dumps(content))
    return files


def test_objects_of_coco_are_the_union(coco: tuple[Path, Path], lexicon: Lexicon):
    objects = coco_objects(*coco, lexicon)
    assert objects == {7: {"car", "person", "hot dog"}, 8: {"person"}, 9: set()}
    assert coco_objects(*coco, lexicon, images=[9, 7]) == {7: {"car", "person", "hot dog"}, 9: set()}
    metric = CHAIR(lexicon, objects)
    metric.update(["a hot dog in a car", "a dog", "a cat, a cat"], torch.tensor([7, 8, 9]))
    scores = metric.compute()
    assert scores["chair_i"].item() == pytest.approx(3 / 5)
    assert scores["chair_s"].item() == pytest.approx(2 / 3)
    assert scores["recall"].item() == pytest.approx(2 / 4)


def test_bad_input(coco: tuple[Path, Path], lexicon: Lexicon, tmp_path: Path):
    with pytest.raises(ValueError, match="no word for COCO's categories person"):
        coco_objects(*coco, Lexicon({"car": ["car"]}))
    with pytest.raises(ValueError, match="image 11 is neither in"):
        coco_objects(*coco, lexicon, images=[7, 11])
    with pytest.raises(FileNotFoundError, match="annotations/\n *instances_val2014.json"):
        coco_objects(tmp_path / "none.json", coco[1], lexicon)
    with pytest.raises(ValueError, match="no 'categories'"):
        coco_objects(coco[1], coco[1], lexicon)
    with pytest.raises(ValueError, match="2 captions, 1 images"):
        CHAIR(lexicon).update(["a dog", "a cat"], [["dog"]])
    with pytest.raises(ValueError, match="image 8 is not among the 1 images"):
        CHAIR(lexicon, {7: {"dog"}}).update(["a dog"], [8])
    with pytest.raises(ValueError, match="'puppy' is none of the lexicon's"):
        CHAIR(lexicon).update(["a dog"], [["puppy"]])
    with pytest.raises(ValueError, match="give CHAIR the `objects`"):
        CHAIR(lexicon).update(["a dog"], [7])
    with pytest.raises(FileNotFoundError, match="LisaAnne/Hallucination"):
        Lexicon.read(tmp_path / "none.txt")
    with pytest.raises(ValueError, match="at least one object"):
        Lexicon({})
    for name, text, message in (
        ("empty.txt", "\n", "holds no synonyms"),
        ("no_table.py", "x = 1", "no text `synonyms_txt`"),
        ("old.py", "print 1", "no Python 3 file"),
        ("list.json", "[1]", "must hold an object"),
        ("broken.json", "{", "no JSON file"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(ValueError, match=message):
            Lexicon.read(tmp_path / name)
