import numpy as np
import pytest

from datamodules.scenes.bayes import cells_of, log_likelihood_ratio, prior_log_odds
from datamodules.scenes.glyphs import PALETTE, glyph_masks
from datamodules.scenes.vocabulary import CATEGORIES
from datamodules.scenes.world import SceneWorld, from_bytes


def likelihood(cell: np.ndarray, kind: int | None, contrasts: np.ndarray) -> float:
    """Mean over colours and contrasts of the density of a cell, written out; constants that all share are left out."""
    if kind is None:
        return float(np.exp(-((cell - 0.45) ** 2).sum() / (2 * 0.01)))
    mask = np.pad(glyph_masks(6)[kind], 1)
    values = []
    for colour in PALETTE:
        for contrast in contrasts:
            mean = 0.45 + mask * contrast * (colour - 0.45)[:, None, None]
            values.append(np.exp(-((cell - mean) ** 2).sum() / (2 * 0.01)))
    return float(np.mean(values))


@pytest.mark.parametrize(("name", "contrasts"), [("circle", np.ones(1)), ("hook", 0.1 + 0.7 * (np.arange(2000) + 0.5) / 2000)])
def test_equals_bayes_rule_written_out(name: str, contrasts: np.ndarray):
    scenes = SceneWorld().scenes(2, "x")
    cells = cells_of(from_bytes(scenes.pixels))[:, 5].astype(np.float64)
    kind = CATEGORIES.index(name)
    ratio = log_likelihood_ratio(cells)[:, kind]
    for cell, found in zip(cells, ratio, strict=True):
        there, nothing = likelihood(cell, kind, contrasts), likelihood(cell, None, contrasts)
        assert found == pytest.approx(np.log(there / nothing), rel=1e-3, abs=1e-3)
        posterior_odds = (0.9 * there) / (0.1 * nothing)
        assert prior_log_odds(0.9) + found == pytest.approx(np.log(posterior_odds), rel=1e-3, abs=1e-3)


def test_evidence_is_right_on_average():
    scenes = SceneWorld().scenes(150, "x")
    cells = cells_of(from_bytes(scenes.pixels)).reshape(-1, 3, 8, 8)
    objects = scenes.objects.ravel()
    ratio = log_likelihood_ratio(cells)
    empty = ratio[objects < 0]
    assert (empty < 0).mean() > 0.99
    anchors = (objects >= 0) & (objects < 4)
    assert (ratio[anchors].argmax(axis=1) == objects[anchors]).mean() > 0.99
    companions = objects >= 4
    assert (ratio[companions, objects[companions]] > 0).mean() > 0.8


def test_the_prior_alone_can_call_a_companion_present():
    noise = 0.45 + 0.1 * np.random.default_rng(0).standard_normal((1500, 3, 8, 8))
    ratio = log_likelihood_ratio(noise)[:, 4:]
    against = ratio < 0
    overruled = against & (ratio + prior_log_odds(0.9) > 0)
    assert overruled.any(), "with p = 0.9 weak evidence of absence loses"
    assert not (against & (ratio + prior_log_odds(0.5) > 0)).any(), "without a prior it never does"
    contrasted = prior_log_odds(0.9) + (1 + 1e3) * ratio
    assert ((contrasted > 0) == (ratio > 0))[np.abs(ratio) > 0.01].all()


def test_cells_are_cut_row_by_row():
    image = np.zeros((1, 3, 32, 32))
    image[0, :, 8:16, 16:24] = 1
    assert cells_of(image).sum(axis=(2, 3, 4))[0].nonzero()[0].tolist() == [6]


def test_refusals():
    with pytest.raises(ValueError, match="no finite odds"):
        prior_log_odds(1.0)
    with pytest.raises(ValueError, match="expected \\[3, 8, 8\\]"):
        log_likelihood_ratio(np.zeros((2, 3, 6, 6)))
    assert prior_log_odds(0.9) == pytest.approx(np.log(9))
