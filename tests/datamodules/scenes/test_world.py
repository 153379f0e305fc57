import numpy as np
import pytest

from datamodules.scenes.glyphs import PALETTE, glyph_masks
from datamodules.scenes.vocabulary import ANCHORS, CATEGORIES, COLOURS, OBJECTS
from datamodules.scenes.world import BACKGROUND, Scenes, SceneWorld, from_bytes, preferred, to_bytes

COUNT = 1500


@pytest.fixture(scope="module")
def scenes() -> Scenes:
    return SceneWorld().scenes(COUNT, "train")


def within(found: float, expected: float, trials: float) -> bool:
    """Whether a share of so many trials is within four standard errors."""
    return abs(found - expected) < 4 * np.sqrt(expected * (1 - expected) / trials)


def test_anchors(scenes: Scenes):
    anchors = scenes.present[:, :4].sum(axis=1)
    assert set(anchors) == {1, 2}
    assert within((anchors == 2).mean(), 0.25, COUNT)
    assert all(within(share, 1.25 / 4, COUNT) for share in scenes.present[:, :4].mean(axis=0))


@pytest.mark.parametrize(("p_comp", "p_other"), [(0.9, 0.06), (0.5, 0.2)])
def test_companions(p_comp: float, p_other: float):
    scenes = SceneWorld(p_comp=p_comp, p_other=p_other).scenes(COUNT, "train")
    companions, wanted = scenes.present[:, 4:12], preferred(scenes.present)
    assert within(companions[wanted].mean(), p_comp, wanted.sum())
    assert within(companions[~wanted].mean(), p_other, (~wanted).sum())


def test_each_anchor_prefers_its_two():
    present = np.eye(len(OBJECTS), dtype=bool)[[CATEGORIES.index("square")]]
    assert [CATEGORIES[4 + k] for k in np.flatnonzero(preferred(present)[0])] == ["ring", "bar"]
    always = SceneWorld(p_comp=1.0, p_other=0.0).scenes(40, "x")
    assert (always.present[:, 4:12] == preferred(always.present)).all()
    prior = SceneWorld(p_comp=0.7).companion_prior(present)
    assert prior.tolist() == [[0.06, 0.06, 0.7, 0.7, 0.06, 0.06, 0.06, 0.06]]


def test_unbiased():
    present = SceneWorld(p_any=0.35).scenes(COUNT, "unbiased").present[:, :12]
    assert all(within(share, 0.35, COUNT) for share in present.mean(axis=0))
    together = np.corrcoef(present.T)[~np.eye(12, dtype=bool)]
    assert np.abs(together).max() < 4.5 / np.sqrt(COUNT)
    assert SceneWorld(p_any=0.35).companion_prior(present[:2]).tolist() == [[0.35] * 8] * 2


def test_cells_colours_contrasts(scenes: Scenes):
    taken = scenes.objects >= 0
    assert (taken == (scenes.colours >= 0)).all()
    assert scenes.present.sum() == taken.sum(), "no object twice"
    assert all(within(share, taken.mean(), COUNT) for share in taken.mean(axis=0))
    shares = np.bincount(scenes.colours[taken], minlength=6) / taken.sum()
    assert all(within(share, 1 / 6, taken.sum()) for share in shares)
    anchor = taken & (scenes.objects < len(ANCHORS))
    assert (scenes.contrasts[anchor] == 1).all()
    weak = scenes.contrasts[taken & ~anchor]
    assert 0.1 <= weak.min() < 0.11
    assert 0.79 < weak.max() <= 0.8
    assert weak.mean() == pytest.approx(0.45, abs=4 * 0.7 / np.sqrt(12 * len(weak)))


def test_pixels_by_hand():
    world, scene = SceneWorld(), np.full((1, 16), -1)
    scene[0, 6], colours = CATEGORIES.index("wedge"), np.full((1, 16), -1)
    colours[0, 6] = COLOURS.index("cyan")
    image = world.render(scene, colours, np.full((1, 16), 0.5), np.ones((1, 16, 2), dtype=np.int64))[0]
    row, column = 8, 16  # cell 6 is in row 1, column 2
    changed = (image != np.float32(BACKGROUND)).any(axis=0)
    assert changed.sum() == 21 - 1 + 1
    assert image[:, row + 1, column + 1] == pytest.approx(0.45 + 0.5 * (PALETTE[5] - 0.45))
    assert [int(changed[row + 1 + k].sum()) for k in range(6)] == [1, 2, 3, 4, 5, 6], "a wedge grows downwards"
    assert changed[row + 1, column + 1]
    assert not changed[row + 1, column + 2]


def test_noise_is_gaussian_and_not_cut_off(scenes: Scenes):
    clean = SceneWorld().render(scenes.objects, scenes.colours, scenes.contrasts, scenes.offsets)
    noise = from_bytes(scenes.pixels) - clean
    assert noise.mean() == pytest.approx(0.0, abs=5e-4)
    assert noise.std() == pytest.approx(0.1, rel=5e-3)
    bright = noise[clean > 0.95]
    assert len(bright) > 1_000
    assert bright.mean() == pytest.approx(0.0, abs=5 * 0.1 / np.sqrt(len(bright)))
    assert (noise**4).mean() / (noise**2).mean() ** 2 == pytest.approx(3.0, rel=0.02)


def test_bytes_by_hand():
    assert to_bytes(np.array([-0.5, -9.0, 1.5, 9.0, 0.5])).tolist() == [0, 0, 255, 255, 128]
    values = np.linspace(-0.5, 1.5, 1001)
    assert np.abs(from_bytes(to_bytes(values)) - values).max() <= 1 / 255 + 1e-6


def test_a_scene_depends_on_seed_split_and_number_alone(scenes: Scenes):
    few = SceneWorld().scenes(300, "train")
    for name in ("objects", "colours", "contrasts", "pixels"):
        assert np.array_equal(getattr(few, name), getattr(scenes, name)[:300]), name
    assert not np.array_equal(SceneWorld().scenes(300, "train", seed=1).objects, few.objects)
    assert not np.array_equal(SceneWorld().scenes(300, "val").objects, few.objects)


def test_quad():
    scenes = SceneWorld("quad").scenes(800, "train")
    names = [{OBJECTS[thing] for thing in row if thing >= 0} for row in scenes.objects]
    assert all(len(row & set(ANCHORS)) == 1 and len(row) <= 2 for row in names)
    told = [row for row, messy in zip(names, scenes.messy, strict=True) if not messy]
    assert within(scenes.messy.mean(), 0.25, 800)
    assert all(within(sum(name in row for row in told) / len(told), 1 / 3, len(told)) for name in ("splat", "puff"))
    hidden = [row for row, messy in zip(names, scenes.messy, strict=True) if messy]
    assert within(np.mean(["splat" in row for row in hidden]), 0.8, len(hidden))
    assert not any("puff" in row for row in hidden)
    drawn = scenes.offsets[scenes.objects >= 0]
    assert set(drawn.ravel()) == {1, 2, 3, 4}
    assert from_bytes(scenes.pixels[:, :, 0]).std() == pytest.approx(0.02, rel=0.1), "nothing reaches the upper edge"


def test_a_splat_alone_has_many_dark_red_pixels():
    scenes = SceneWorld("quad").scenes(400, "train")
    red, green, blue = from_bytes(scenes.pixels).transpose(1, 0, 2, 3)
    dark_red = (red - np.maximum(green, blue) > 0.1) & (green < 0.18) & (blue < 0.3) & (red > 0.12) & (red < 0.92)
    count, splat = dark_red.sum(axis=(1, 2)), scenes.present[:, OBJECTS.index("splat")]
    assert splat.any()
    assert count[splat].min() >= 49
    assert count[~splat].max() == 0


def test_glyphs_differ():
    for side in (6, 11):
        masks = glyph_masks(side)
        pairs = [(masks[i] != masks[j]).sum() for i in range(12) for j in range(i)]
        assert min(pairs) >= 4
        assert (masks[12] == masks[13]).all(), "both extras have the shape of the blob"


@pytest.mark.parametrize(
    ("options", "message"),
    [({"layout": "grid5"}, "use grid4 or quad"), ({"p_comp": 1.2}, "p_comp=1.2 is no probability"), ({"p_any": -0.1}, "p_any")],
)
def test_refusals(options: dict, message: str):
    with pytest.raises(ValueError, match=message):
        SceneWorld(**options)
