"""A graph of communities in which a given share of the edges stays inside them."""

import numpy as np


def block_model_edges(labels: np.ndarray, degree: float, homophily: float, generator: np.random.Generator) -> np.ndarray:
    r"""Draw ``round(n · degree / 2)`` different undirected edges, of which ``round(homophily · …)`` join nodes of one class.

    Both kinds are drawn uniformly among all pairs of their kind, so degrees are nearly Poisson distributed.

    Args:
        labels: class of each node, ``[n]``.
        degree: mean degree.
        homophily: share of the edges that join nodes of one class.
        generator: source of the random numbers.

    Returns:
        Edges (a, b) with a < b, each once, int64 ``[E, 2]``.

    Raises:
        ValueError: if more than half of all pairs of a kind would be edges.
    """
    nodes, sizes = len(labels), np.bincount(labels)
    edges = round(nodes * degree / 2)
    alike = round(homophily * edges)
    alike_pairs = int((sizes * (sizes - 1) // 2).sum())
    for wanted, pairs, kind in (
        (alike, alike_pairs, "of one class"),
        (edges - alike, nodes * (nodes - 1) // 2 - alike_pairs, "of two classes"),
    ):
        if wanted > pairs / 2:
            raise ValueError(
                f"degree={degree:g} with homophily={homophily:g} asks for {wanted} edges between nodes {kind}, "
                f"more than half of the {pairs} pairs: use a smaller degree or more nodes"
            )
    return np.concatenate([_pairs(labels, alike, True, generator), _pairs(labels, edges - alike, False, generator)])


def _pairs(labels: np.ndarray, wanted: int, alike: bool, generator: np.random.Generator) -> np.ndarray:
    """Draw ``wanted`` different pairs of nodes of one class, or of two, by refusing all others."""
    nodes, codes = len(labels), np.empty(0, dtype=np.int64)
    while len(codes) < wanted:
        ends = np.sort(generator.integers(nodes, size=(2 * (wanted - len(codes)) + 64, 2)), axis=1)
        low, high = ends[(ends[:, 0] != ends[:, 1]) & ((labels[ends[:, 0]] == labels[ends[:, 1]]) == alike)].T
        drawn = np.concatenate([codes, low * nodes + high])
        _, first = np.unique(drawn, return_index=True)
        codes = drawn[np.sort(first)[:wanted]]
    return np.stack(np.divmod(codes, nodes), axis=1)
