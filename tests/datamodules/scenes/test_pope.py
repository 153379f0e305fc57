import numpy as np
import pytest

from datamodules.scenes.pope import pope_questions
from datamodules.scenes.world import SceneWorld

KINDS = ("random", "popular", "adversarial")


def plain(present: np.ndarray, negatives: str, positives: dict[int, list[int]], seed: int) -> list[tuple[int, int, bool]]:
    """The sampler in words: loops, sorted lists and a history, as the official script has them."""
    objects = range(present.shape[1])
    known = [k for k in objects if present[:, k].any()]
    frequent = sorted(known, key=lambda k: (-present[:, k].sum(), k))
    questions = []
    for image, asked in positives.items():
        history: list[int] = []
        chances = np.random.default_rng((seed, image)).random((2, present.shape[1]))[1]
        for positive in asked:
            together = sorted(known, key=lambda k: (-(present[:, k] & present[:, positive]).sum(), k))
            order = {"random": sorted(known, key=lambda k: -chances[k]), "popular": frequent, "adversarial": together}[negatives]
            negative = next(k for k in order if not present[image, k] and k not in history)
            history.append(negative)
            questions += [(image, positive, True), (image, negative, False)]
    return questions


@pytest.mark.parametrize("negatives", KINDS)
def test_equals_a_plain_implementation(negatives: str):
    present = SceneWorld(p_comp=0.5).scenes(150, "balanced").present
    images, asked, answers = pope_questions(present, negatives, seed=3)
    positives: dict[int, list[int]] = {}
    for image, thing, answer in zip(images.tolist(), asked.tolist(), answers.tolist(), strict=True):
        if answer:
            positives.setdefault(image, []).append(thing)
    expected = plain(present, negatives, positives, seed=3)
    assert list(zip(images.tolist(), asked.tolist(), answers.tolist(), strict=True)) == expected
    eligible = [i for i in range(150) if 3 <= present[i].sum() <= 9]
    assert list(positives) == eligible


def test_what_every_kind_keeps():
    present = SceneWorld().scenes(300, "x").present
    for negatives in KINDS:
        images, asked, answers = pope_questions(present, negatives, seed=0)
        assert answers.mean() == 0.5
        assert (present[images, asked] == answers).all()
        pairs = list(zip(images.tolist(), asked.tolist(), strict=True))
        assert len(pairs) == len(set(pairs)), "no image is asked about an object twice"
        assert asked.max() < 12, "no image has a splat"


def test_adversarial_asks_for_the_companion_that_is_missing():
    # objects 0, 3 and 4 nearly always have object 1 beside them; object 2 is more frequent than that, but elsewhere
    present = np.zeros((14, 8), dtype=bool)
    present[:6, [0, 3, 4]] = True
    present[:5, 1] = True
    present[6:, [2, 5, 6]] = True
    present[6, 7] = True
    for negatives, expected in (("adversarial", 1), ("popular", 2)):
        images, asked, _ = pope_questions(present, negatives, seed=0)
        assert asked[images == 5][1] == expected


def test_random_negatives_are_all_alike():
    present = np.zeros((1200, 7), dtype=bool)
    present[:, :3] = True
    present[0, 3:] = True  # so that all are known; this image cannot be asked
    images, asked, answers = pope_questions(present, "random", seed=0)
    assert 0 not in images
    counts = np.bincount(asked[~answers], minlength=7)[3:] / (3 * 1199)
    assert counts == pytest.approx([0.25] * 4, abs=0.02)
    first = np.bincount(asked[answers][::3], minlength=3)[:3] / 1199
    assert first == pytest.approx([1 / 3] * 3, abs=0.06)


def test_questions_of_an_image_do_not_depend_on_the_others():
    present = SceneWorld().scenes(60, "x").present
    images, asked, _ = pope_questions(present, "random", seed=0)
    few, few_asked, _ = pope_questions(present[:40], "random", seed=0)
    assert np.array_equal(few, images[: len(few)])
    assert np.array_equal(few_asked, asked[: len(few)])


def test_refusals():
    present = np.ones((3, 6), dtype=bool)
    with pytest.raises(ValueError, match="use one of random, popular, adversarial"):
        pope_questions(present, "hard", seed=0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no image of 3"):
        pope_questions(present, "random", seed=0)
