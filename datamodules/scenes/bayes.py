"""What an ideal observer of one cell would believe, for scenes of ``grid4``.

Legend: N cells, K anchors and companions, Q colours, M nodes of the quadrature.
"""

import numpy as np

from datamodules.scenes.glyphs import PALETTE, glyph_masks
from datamodules.scenes.vocabulary import ANCHORS, CATEGORIES
from datamodules.scenes.world import BACKGROUND, CONTRASTS, LAYOUTS


def prior_log_odds(probability: float) -> float:
    r"""Return :math:`\log \frac{p}{1-p}`.

    Raises:
        ValueError: if p is not between 0 and 1.
    """
    if not 0 < probability < 1:
        raise ValueError(f"probability={probability} has no finite odds: use a number between 0 and 1")
    return float(np.log(probability) - np.log1p(-probability))


def log_likelihood_ratio(cells: np.ndarray, nodes: int = 32) -> np.ndarray:
    r"""Return how much more likely a cell is with each object in it than without any, float64 ``[N, K]``.

    .. math::
        \mathrm{LLR}_k = \log \frac16 \sum_q \int
            \exp \frac{c \langle x - b, \delta_{kq} \rangle - \frac12 c^2 \lVert \delta_{kq} \rVert^2}{\sigma^2} \, p_k(c) \, dc

    with :math:`\delta_{kq}` what an object k of the colour q and contrast 1 adds to the background b. The contrast c is 1 for
    anchors and U(0.1, 0.8) for companions, over which Gauss and Legendre integrate. Prior log-odds plus LLR are the posterior
    log-odds of "k is here" against "nothing is".

    Args:
        cells: pixels of a cell, ``[N, 3, 8, 8]``.
        nodes: M.

    Raises:
        ValueError: if the cells have another shape.
    """
    layout = LAYOUTS["grid4"]
    if cells.shape[1:] != (3, layout.cell, layout.cell):
        raise ValueError(f"cells have shape {list(cells.shape[1:])}, expected [3, {layout.cell}, {layout.cell}]")
    added = _templates()
    match_NKQ = np.einsum("nchw,kqchw->nkq", cells - BACKGROUND, added)
    size_KQ = (added**2).sum(axis=(2, 3, 4))
    points, weights = np.polynomial.legendre.leggauss(nodes)
    low, high = CONTRASTS
    contrasts_KM = np.where((np.arange(len(CATEGORIES)) < len(ANCHORS))[:, None], 1.0, low + (high - low) * (points + 1) / 2)
    c_KQM = contrasts_KM[:, None, :]
    exponent = (c_KQM * match_NKQ[..., None] - c_KQM**2 * size_KQ[..., None] / 2) / layout.noise**2
    largest = exponent.max(axis=(2, 3), keepdims=True)
    mean = (np.exp(exponent - largest) * weights / 2).sum(axis=3).mean(axis=2)
    return np.log(mean) + largest[:, :, 0, 0]


def cells_of(pixels: np.ndarray) -> np.ndarray:
    """Cut images ``[N, 3, 32, 32]`` into their cells, row by row, ``[N, 16, 3, 8, 8]``."""
    layout = LAYOUTS["grid4"]
    cut = pixels.reshape(-1, 3, layout.cells, layout.cell, layout.cells, layout.cell)
    return cut.transpose(0, 2, 4, 1, 3, 5).reshape(-1, layout.cells**2, 3, layout.cell, layout.cell)


def _templates() -> np.ndarray:
    """Return what each object of each colour adds to a cell at contrast 1, ``[K, Q, 3, 8, 8]``."""
    layout = LAYOUTS["grid4"]
    margin = (layout.offsets[0], layout.cell - layout.glyph - layout.offsets[0])
    masks = np.pad(glyph_masks(layout.glyph)[: len(CATEGORIES)], ((0, 0), margin, margin))
    return masks[:, None, None] * (PALETTE - BACKGROUND)[None, :, :, None, None]
