"""Scenes: what is in them, and their pixels.

Legend: N scenes, C cells, K objects of the vocabulary.
"""

from dataclasses import dataclass
from typing import Literal
from zlib import crc32

import numpy as np

from datamodules.scenes.glyphs import CHECKERS, PALETTE, glyph_masks
from datamodules.scenes.vocabulary import ANCHORS, CATEGORIES, COLOURS, COMPANIONS, EXTRAS, OBJECTS

SIDE = 32
BACKGROUND = 0.45
CONTRASTS = (0.1, 0.8)
TWO_ANCHORS = 0.25
ABSENT = -1
CHUNK = 256
"""Scenes that are rendered at a time: what one needs in between stays in the processor's cache."""
BYTE_RANGE = (-0.5, 1.5)
"""Pixel values of the bytes 0 and 255: wide enough that noise stays Gaussian in place of being cut off at 0 and 1."""

LayoutName = Literal["grid4", "quad"]


@dataclass(frozen=True)
class Layout:
    """Where objects can be.

    Attributes:
        cells: cells along a side of the image.
        glyph: side of an object in pixels.
        offsets: least and greatest distance in pixels of an object from the upper and from the left edge of its cell.
        noise: standard deviation of the noise of a pixel.
    """

    cells: int
    glyph: int
    offsets: tuple[int, int]
    noise: float

    @property
    def cell(self) -> int:
        """Side of a cell in pixels."""
        return SIDE // self.cells


LAYOUTS = {"grid4": Layout(4, 6, (1, 1), 0.10), "quad": Layout(2, 11, (1, 4), 0.02)}


@dataclass(frozen=True)
class Scenes:
    """Scenes of one layout.

    Attributes:
        objects: number of the object in each cell, -1 for none, int64 ``[N, C]``, cells row by row.
        colours: number of its colour, -1 for none, int64 ``[N, C]``.
        contrasts: how far it stands out from the background, 0 to 1, ``[N, C]``.
        offsets: its distance from the upper and the left edge of its cell, int64 ``[N, C, 2]``.
        messy: True where a prompt of ``quad`` would not tell about a splat, bool ``[N]``.
        pixels: uint8 ``[N, 3, 32, 32]``; :func:`from_bytes` returns colours.
    """

    objects: np.ndarray
    colours: np.ndarray
    contrasts: np.ndarray
    offsets: np.ndarray
    messy: np.ndarray
    pixels: np.ndarray

    def __len__(self) -> int:
        return len(self.objects)

    @property
    def present(self) -> np.ndarray:
        """Which objects of the vocabulary are there, bool ``[N, K]``."""
        return (self.objects[:, :, None] == np.arange(len(OBJECTS))).any(axis=1)


def preferred(present: np.ndarray) -> np.ndarray:
    """Return which companions the anchors prefer, bool ``[N, 8]``: anchor k the companions 2k and 2k + 1.

    Args:
        present: which objects are there, bool ``[N, K]``.
    """
    return np.repeat(present[:, : len(ANCHORS)], len(COMPANIONS) // len(ANCHORS), axis=1)


class SceneWorld:
    r"""A source of scenes whose prior and likelihood are known.

    ``grid4``: 1 anchor, or 2 with probability 1/4. A companion is there with ``p_comp`` if an anchor that is there prefers it, else
    with ``p_other``. Objects are in random cells, at most one each, and have one of 6 colours. Anchors have contrast 1, companions
    one of U(0.1, 0.8). A pixel is

    .. math:: x = b + m \, c \, (\text{colour} - b) + \sigma \epsilon, \qquad b = 0.45

    with the contrast c, and m = 1 on the object and 0 elsewhere. If ``p_any`` is set, every anchor and companion is there with that
    probability and no object tells about another.

    ``quad``: an anchor, and for a quarter of the scenes each nothing else, a splat, a puff, or, with probability 0.8, a splat of
    which a prompt does not tell (``messy``).

    Args:
        layout: ``grid4``: 4 x 4 cells of 8 pixels; ``quad``: 2 x 2 cells of 16 pixels.
        p_comp: probability of a preferred companion.
        p_other: probability of any other companion.
        p_any: see above.

    Raises:
        ValueError: if the layout is unknown or a probability is none.
    """

    def __init__(
        self, layout: LayoutName = "grid4", p_comp: float = 0.9, p_other: float = 0.06, p_any: float | None = None
    ) -> None:
        if layout not in LAYOUTS:
            raise ValueError(f"layout={layout!r} is unknown, use {' or '.join(LAYOUTS)}")
        for name, probability in {"p_comp": p_comp, "p_other": p_other, "p_any": p_any}.items():
            if probability is not None and not 0 <= probability <= 1:
                raise ValueError(f"{name}={probability} is no probability: use a number from 0 to 1")
        self.layout, self.p_comp, self.p_other, self.p_any = LAYOUTS[layout], p_comp, p_other, p_any
        self._draw = self._draw_quad if layout == "quad" else self._draw_grid

    def scenes(self, count: int, split: str, seed: int = 0) -> Scenes:
        """Return the scenes 0 to ``count - 1`` of a split; each depends on the seed, the split and its own number alone.

        Args:
            count: how many.
            split: any name.
            seed: seed of the world.
        """
        cells = self.layout.cells**2
        objects, colours = (np.full((count, cells), ABSENT) for _ in range(2))
        contrasts, offsets = np.ones((count, cells)), np.zeros((count, cells, 2), dtype=np.int64)
        messy, pixels = np.zeros(count, dtype=bool), np.empty((count, 3, SIDE, SIDE), dtype=np.uint8)
        noise = np.empty((CHUNK, 3, SIDE, SIDE), dtype=np.float32)
        low, high = self.layout.offsets
        split_number = crc32(split.encode())
        for index in range(count):
            random = np.random.default_rng((seed, split_number, index))
            there, messy[index] = self._draw(random)
            where = random.permutation(cells)[: len(there)]
            objects[index, where] = there
            colours[index, where] = np.where(there < len(CATEGORIES), random.integers(len(COLOURS), size=len(there)), ABSENT)
            companion = (there >= len(ANCHORS)) & (there < len(CATEGORIES))
            contrasts[index, where] = np.where(companion, random.uniform(*CONTRASTS, size=len(there)), 1.0)
            offsets[index, where] = random.integers(low, high + 1, size=(len(there), 2))
            random.standard_normal(dtype=np.float32, out=noise[index % CHUNK])
            if (index + 1) % CHUNK == 0 or index + 1 == count:
                drawn = slice(index // CHUNK * CHUNK, index + 1)
                clean = self.render(objects[drawn], colours[drawn], contrasts[drawn], offsets[drawn])
                pixels[drawn] = to_bytes(clean + np.float32(self.layout.noise) * noise[: len(clean)])
        return Scenes(objects, colours, contrasts, offsets, messy, pixels)

    def render(self, objects: np.ndarray, colours: np.ndarray, contrasts: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Return the images without noise, float32 ``[N, 3, 32, 32]``; see :class:`Scenes` for the arguments."""
        side, cell = self.layout.cells, self.layout.cell
        first, second = (self._paints(colours, objects, which) for which in range(2))
        masks = self._placed_masks()[objects, offsets[..., 0], offsets[..., 1]] * contrasts[..., None, None].astype(np.float32)
        rows, columns = np.indices((cell, cell))
        checker = ((rows // 2 + columns // 2) % 2).astype(np.float32)
        paint = first[..., None, None] * (1 - checker) + second[..., None, None] * checker
        image = np.float32(BACKGROUND) + masks[:, :, None] * (paint - np.float32(BACKGROUND))
        image = image.reshape(-1, side, side, 3, cell, cell).transpose(0, 3, 1, 4, 2, 5)
        return np.ascontiguousarray(image.reshape(-1, 3, SIDE, SIDE))

    def companion_prior(self, present: np.ndarray) -> np.ndarray:
        """Return the probability of each companion given the anchors, ``[N, 8]``.

        Args:
            present: which objects are there, bool ``[N, K]``.
        """
        if self.p_any is not None:
            return np.full((len(present), len(COMPANIONS)), self.p_any)
        return np.where(preferred(present), self.p_comp, self.p_other)

    def _draw_grid(self, random: np.random.Generator) -> tuple[np.ndarray, bool]:
        """Draw which objects are in a scene."""
        chances = random.random(len(CATEGORIES))
        if self.p_any is not None:
            return np.flatnonzero(chances < self.p_any), False
        present = np.zeros((1, len(OBJECTS)), dtype=bool)
        present[0, random.permutation(len(ANCHORS))[: 1 + (random.random() < TWO_ANCHORS)]] = True
        present[0, len(ANCHORS) : len(CATEGORIES)] = chances[len(ANCHORS) :] < self.companion_prior(present)[0]
        return np.flatnonzero(present[0]), False

    def _draw_quad(self, random: np.random.Generator) -> tuple[np.ndarray, bool]:
        anchor, kind, hidden = random.integers(len(ANCHORS)), random.integers(4), random.random() < 0.8
        splat, puff = (OBJECTS.index(name) for name in EXTRAS)
        extra = ([], [splat], [puff], [splat] * hidden)[kind]
        return np.array([anchor, *extra]), bool(kind == 3)

    def _placed_masks(self) -> np.ndarray:
        """Return the shape of each object at each offset in its cell, float32 ``[K + 1, high + 1, high + 1, cell, cell]``.

        The last object is none.
        """
        low, high = self.layout.offsets
        masks = np.zeros((len(OBJECTS) + 1, high + 1, high + 1, self.layout.cell, self.layout.cell), dtype=np.float32)
        for top in range(low, high + 1):
            for left in range(low, high + 1):
                inside = slice(top, top + self.layout.glyph), slice(left, left + self.layout.glyph)
                masks[:-1, top, left][:, *inside] = glyph_masks(self.layout.glyph)
        return masks

    def _paints(self, colours: np.ndarray, objects: np.ndarray, which: int) -> np.ndarray:
        """Return one of the two colours with which each object is filled, float32 ``[N, C, 3]``."""
        extras = np.array([CHECKERS[name][which] for name in EXTRAS])
        number = np.clip(objects - len(CATEGORIES), 0, len(EXTRAS) - 1)
        return np.where((objects >= len(CATEGORIES))[..., None], extras[number], PALETTE[colours]).astype(np.float32)


def to_bytes(pixels: np.ndarray) -> np.ndarray:
    """Round pixel values to 256 steps of 1/127.5 from -0.5 to 1.5."""
    low, high = BYTE_RANGE
    return np.clip(np.rint((pixels - low) * (255 / (high - low))), 0, 255).astype(np.uint8)


def from_bytes(pixels: np.ndarray) -> np.ndarray:
    """Undo :func:`to_bytes`, float32."""
    low, high = BYTE_RANGE
    return pixels.astype(np.float32) * np.float32((high - low) / 255) + np.float32(low)
