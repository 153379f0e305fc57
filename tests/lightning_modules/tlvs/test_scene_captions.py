import pytest
import torch
from torch import Tensor

from datamodules.scenes.text import captions
from datamodules.scenes.vocabulary import CATEGORIES, COLOURS, OBJECTS, WORDS, encode
from datamodules.scenes.world import SceneWorld
from lightning_modules.tlvs.scene_captions import CaptionGrammar, SceneHallucination, objects_there

GOOD = "there is a star that is red and a cross that is blue . <eos>"
GRAMMAR = CaptionGrammar(WORDS, CATEGORIES, COLOURS)


def padded(*texts: str) -> Tensor:
    rows = [encode(text) for text in texts]
    return torch.tensor([row + [0] * (max(map(len, rows)) - len(row)) for row in rows])


def names(named_K: Tensor) -> set[str]:
    return {CATEGORIES[k] for k in named_K.nonzero().flatten()}


def test_well_formed():
    named, malformed = GRAMMAR(padded(GOOD, "there is a dot that is cyan . <eos>"))
    assert [names(row) for row in named] == [{"star", "cross"}, {"dot"}]
    assert malformed.tolist() == [False, False]


@pytest.mark.parametrize(
    "text",
    [
        "there is a star that is red and a cross that is blue .",
        "there is a star that is red and . <eos>",
        "there is a star that is a cross . <eos>",
        "there is red . <eos>",
        "is there a star ? <eos>",
        "there is a star . <eos>",
        "there is a star that is red . . <eos>",
        "there is a star that is red . <eos> <eos>",
        "there is a star that is red and a star that is blue . <eos>",
        "<eos>",
    ],
)
def test_malformed(text: str):
    assert GRAMMAR(padded(text))[1].item()


def test_names_after_the_end_do_not_count():
    named, malformed = GRAMMAR(padded("there is a star that is red . <eos> cross"))
    assert names(named[0]) == {"star"}
    assert malformed.item()


def test_captions_of_scenes_are_understood():
    scenes = SceneWorld().scenes(150, "x")
    rows, _ = captions(scenes)
    named, malformed = GRAMMAR(torch.from_numpy(rows).long()[:, 1:])
    assert not malformed.any()
    assert named.equal(torch.from_numpy(scenes.present[:, :12]))
    assert named.equal(objects_there(torch.from_numpy(scenes.objects), 12))


def test_hallucination_by_hand():
    metric = SceneHallucination()
    there = torch.zeros(3, 12, dtype=torch.bool)
    named = torch.zeros(3, 12, dtype=torch.bool)
    named[0, [0, 1, 2]], there[0, [0, 3]] = True, True  # two of three are wrong, one of two is found
    named[1, 5], there[1, [5, 6]] = True, True
    there[2, 7] = True  # an empty caption counts
    metric.update(named[:2], there[:2], torch.tensor([False, True]))
    metric.update(named[2:], there[2:], torch.tensor([True]))
    found = {name: value.item() for name, value in metric.compute().items()}
    precision, recall = 1 / 2, 2 / 5
    assert found == pytest.approx(
        {
            **{"chair_i": 2 / 4, "chair_s": 1 / 3, "recall": recall, "f1": 2 * precision * recall / (precision + recall)},
            **{"malformed": 2 / 3, "objects": 4 / 3},
        }
    )


def test_nothing_named():
    metric = SceneHallucination()
    nothing = torch.zeros(2, 12, dtype=torch.bool)
    metric.update(nothing, nothing, torch.tensor([True, True]))
    assert {name: value.item() for name, value in metric.compute().items()} == {
        **{"chair_i": 0.0, "chair_s": 0.0, "recall": 0.0, "f1": 0.0, "malformed": 1.0, "objects": 0.0}
    }


def test_unknown_words_are_refused():
    with pytest.raises(ValueError, match="lacks 'zebra'"):
        CaptionGrammar(WORDS, [*OBJECTS, "zebra"], COLOURS)
