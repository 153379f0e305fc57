import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgba

from datamodules import SceneDataModule
from datamodules.base import BatchKey
from datamodules.scenes.batches import draw_questions
from datamodules.scenes.vocabulary import CATEGORIES, EOS, NO, OBJECTS, WORDS, YES, decode, encode
from datamodules.scenes.world import SceneWorld, from_bytes

SIZES = {"n_train": 48, "n_val": 10, "n_test": 40, "n_unbiased": 20, "batch_size": 16}


def ready(task: str, *stages: str, **options) -> SceneDataModule:
    data = SceneDataModule(task, **{**SIZES, **options})
    for stage in stages or ("fit", "test"):
        data.setup(stage)
    return data


@pytest.fixture(scope="module")
def unified() -> SceneDataModule:
    return ready("unified")


def key(indices: range | list[int], rows: slice = slice(None), epoch: int = 0, batch: int = 0) -> BatchKey:
    return BatchKey(epoch, batch, np.array(indices), rows)


def test_caption_batches(unified: SceneDataModule):
    batches = list(unified.train_dataloader())
    assert len(batches) == 3
    scenes = SceneWorld().scenes(48, "train")
    for batch in (joint["caption"] for joint in batches):
        assert {name: (value.dtype, value.shape[0]) for name, value in batch.items()} == {
            **{"pixels": (torch.float32, 16), "input_ids": (torch.int64, 16), "prompt_length": (torch.int64, 16)},
            **{
                "no_image": (torch.bool, 16),
                "objects": (torch.int64, 16),
                "colours": (torch.int64, 16),
                "index": (torch.int64, 16),
            },
        }
        chosen = batch["index"].numpy()
        assert np.array_equal(batch["pixels"].numpy(), from_bytes(scenes.pixels[chosen]))
        assert np.array_equal(batch["objects"].numpy(), scenes.objects[chosen])
        assert (batch["input_ids"][:, -1] != 0).any(), "no longer than its longest text"
        assert (batch["prompt_length"] == 1).all()
        for words, objects in zip(batch["input_ids"].tolist(), batch["objects"].tolist(), strict=True):
            named = [word for word in decode(words).split() if word in OBJECTS]
            assert named == [OBJECTS[thing] for thing in sorted(objects) if thing >= 0]


def check_questions(batch: dict[str, torch.Tensor]) -> None:
    assert (batch["prompt_length"] == 6).all()
    for words, asked, answer, objects in zip(
        batch["input_ids"].tolist(), batch["asked"].tolist(), batch["answer"].tolist(), batch["objects"].tolist(), strict=True
    ):
        assert words[:6] == encode(f"<qa> is there a {OBJECTS[asked]} ?")
        assert words[6:] == [YES if answer else NO, EOS]
        assert (asked in objects) == answer


def test_questions_are_right(unified: SceneDataModule):
    for batch in unified.train_dataloader():
        check_questions(batch["question"])
    for batch in unified.val_dataloader():
        check_questions(batch["question"])
    for loader in unified.test_dataloader()[2:]:
        for batch in loader:
            check_questions(batch)


def test_training_questions_are_new_and_fixed_ones_are_not(unified: SceneDataModule):
    first, again, next_epoch, next_batch = (
        unified.train_set[key(range(16), epoch=epoch, batch=batch)]["question"]["asked"]
        for epoch, batch in ((0, 0), (0, 0), (1, 0), (0, 1))
    )
    assert first.equal(again)
    assert not first.equal(next_epoch)
    assert not first.equal(next_batch)
    val = [unified.val_set[key(range(10), epoch=epoch)]["question"]["asked"] for epoch in (0, 1)]
    assert val[0].equal(val[1])


def test_how_questions_are_drawn():
    present = np.zeros((6000, 5), dtype=bool)
    present[:, :2] = True
    asked, answers = draw_questions(present, np.random.default_rng(0))
    assert answers.mean() == pytest.approx(0.5, abs=0.03)
    assert np.bincount(asked, minlength=5) / 6000 == pytest.approx([1 / 4, 1 / 4, 1 / 6, 1 / 6, 1 / 6], abs=0.025)
    edges = np.array([[True, True], [False, False]] * 20)
    assert draw_questions(edges, np.random.default_rng(0))[1].tolist() == [True, False] * 20


def test_share_of_withheld_images():
    data = ready("caption", "fit", null_image_prob=0.15)
    rows = torch.stack([data.train_set[key([0] * 16, batch=batch)]["no_image"] for batch in range(250)])
    assert rows.float().mean().item() == pytest.approx(0.15, abs=0.023)
    assert not rows.all(dim=0).any()
    assert not any(batch["no_image"].any() for batch in data.val_dataloader())
    never = ready("caption", "fit", null_image_prob=0.0)
    assert not any(batch["no_image"].any() for batch in never.train_dataloader())


@pytest.mark.parametrize("task", ["caption", "vqa", "unified"])
def test_ranks_share_a_batch(task: str):
    data = ready(task, "fit")
    whole = data.train_set[key(range(16), epoch=2, batch=1)]
    shares = [data.train_set[key(range(16), slice(rank, None, 2), epoch=2, batch=1)] for rank in range(2)]
    for name in whole if task == "unified" else [None]:
        parts = [whole, *shares] if name is None else [batch[name] for batch in (whole, *shares)]
        for field, value in parts[0].items():
            for rank in range(2):
                assert parts[1 + rank][field].equal(value[rank::2]), (name, field)


def test_a_sample_does_not_depend_on_the_size_of_its_split():
    small, large = ready("caption", "fit", n_train=16), ready("caption", "fit")
    one, other = (data.train_set[key(range(16))] for data in (small, large))
    assert all(one[name].equal(other[name]) for name in one)


def test_unbiased_images(unified: SceneDataModule):
    drawn = torch.cat([unified.train_set[key(range(16), batch=batch)]["unbiased"]["index"] for batch in range(20)])
    assert set(drawn.tolist()) == set(range(20))
    one, other = (unified.train_set[key(range(16), batch=batch)]["unbiased"] for batch in range(2))
    assert not one["index"].equal(other["index"])
    present = unified.train_set.parts["unbiased"].scenes.present
    assert np.array_equal(present, SceneWorld(p_any=0.35).scenes(20, "unbiased").present)


def test_suites():
    data = ready("unified", "test")
    assert data.suite_names() == ["balanced", "pope_random", "pope_popular", "pope_adversarial"]
    assert list(data.test_suites) == data.suite_names() == data.model_arguments()["test_suites"]
    share = {name: suite.scenes.present[:, 4:12].sum() for name, suite in {"test": data.test_set, **data.test_suites}.items()}
    assert share["balanced"] == share["pope_popular"] < 0.75 * share["test"], "POPE asks about balanced images"
    pope = ready("pope", "test")
    assert pope.suite_names() == ["popular", "adversarial"]
    for one, other in ((pope.test_set, "random"), (pope.test_suites["adversarial"], "adversarial")):
        assert np.array_equal(one.asked, data.test_suites[f"pope_{other}"].asked)
    vqa = ready("vqa", "test")
    assert vqa.suite_names() == ["balanced"]
    assert len(vqa.test_suites["balanced"]) == 40
    check_questions(vqa.test_set[key(range(40))])


def test_what_the_model_is_told():
    told = SceneDataModule().model_arguments()
    assert told == {
        **{"test_suites": ["balanced"], "words": list(WORDS), "object_words": list(CATEGORIES)},
        "colour_words": ["red", "green", "blue", "yellow", "purple", "cyan"],
    }


def test_quad():
    data = ready("vqa", layout="quad", n_test=20)
    assert data.suite_names() == []
    assert data.model_arguments()["object_words"] == list(OBJECTS)
    batch = data.train_set[key(range(48))]
    check_questions(batch)
    asked = {OBJECTS[thing] for thing in batch["asked"].tolist()}
    assert asked <= {"circle", "square", "triangle", "diamond", "splat", "puff"}
    assert "splat" in asked
    assert batch["objects"].shape == (48, 4)


def test_plot(unified: SceneDataModule):
    batch = unified.test_set[key(range(3))]
    generated = torch.tensor([encode(f"there is a {word} that is red . <eos>") for word in ("circle", "hook", "dot")])
    batch["objects"][:, :] = -1
    batch["colours"][:, :] = -1
    batch["objects"][:, 0], batch["colours"][:, 0] = CATEGORIES.index("circle"), 0
    figure = unified.plot({name: batch[name] for name in ("pixels", "objects", "colours")} | {"generated": generated})
    said = [axes.texts[1] for axes in figure.axes[:3]]
    assert said[0].get_text() == "model: there is a circle that is\nred."
    assert "HOOK" in said[1].get_text()
    assert to_rgba(said[0].get_color()) != to_rgba(said[1].get_color())
    assert figure.axes[0].texts[0].get_text() == "there is a circle that is red."


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "t2i"}, "use one of caption, vqa, pope, unified"),
        ({"task": "pope", "layout": "quad"}, "use grid4"),
        ({"n_val": 0}, "n_val=0"),
        ({"null_image_prob": 1.0}, "null_image_prob=1.0"),
        ({"p_comp": 2.0}, "p_comp=2.0"),
        ({"layout": "hexagon"}, "use grid4 or quad"),
    ],
)
def test_refusals(options: dict, message: str):
    with pytest.raises(ValueError, match=message):
        SceneDataModule(**options)
