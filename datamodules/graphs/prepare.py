"""From stored pairs of nodes to sorted edges: symmetric, without duplicates, with a direction if the data have one."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Edges:
    """Edges j -> i, sorted by target i and then by source j.

    Attributes:
        source: j, int64 ``[E]``.
        target: i, int64 ``[E]``.
        direction: ``B_ij - B_ji``, float32 ``[E]``, where ``B_ab = 1`` if the data have the edge from a to b; None if they have
            no directions.
        phase: ``theta_ij``, float32 ``[E]``; None without phases.
    """

    source: np.ndarray
    target: np.ndarray
    direction: np.ndarray | None = None
    phase: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.source)

    def at(self, positions: np.ndarray) -> "Edges":
        """Return the edges at ``positions``, in that order."""
        direction, phase = (None if values is None else values[positions] for values in (self.direction, self.phase))
        return Edges(self.source[positions], self.target[positions], direction, phase)


def prepare_edges(edges_E2: np.ndarray, nodes: int, directed: bool = False, undirected: bool = True) -> Edges:
    """Sort edges, drop duplicates and self-loops, and add the reverse of each edge.

    Args:
        edges_E2: int64 ``[E, 2]``, rows (a, b) for an edge from a to b.
        nodes: number of nodes.
        directed: whether the order of a row means something and ``direction`` is wanted.
        undirected: add the reverse of each edge.

    Returns:
        The edges, without self-loops.
    """
    proper = edges_E2[edges_E2[:, 0] != edges_E2[:, 1]]
    stored = np.unique(proper[:, 1] * nodes + proper[:, 0])
    reversed_ = stored % nodes * nodes + stored // nodes
    codes = np.union1d(stored, reversed_) if undirected else stored
    target, source = np.divmod(codes, nodes)
    if not directed:
        return Edges(source, target)
    forward, backward = np.isin(codes, stored), np.isin(codes, reversed_)
    return Edges(source, target, direction=backward.astype(np.float32) - forward.astype(np.float32))


def in_order(edges: Edges, nodes: int) -> Edges:
    """Sort the edges by target and then by source."""
    return edges.at(np.argsort(edges.target * nodes + edges.source))


def with_self_loops(edges: Edges, nodes: int) -> Edges:
    """Add one self-loop to each node, with direction and phase 0; ``edges`` must have none.

    Raises:
        ValueError: if a phase or direction does not belong to each edge.
    """
    loops, zeros = np.arange(nodes), np.zeros(nodes, dtype=np.float32)
    extended = {}
    for name in ("direction", "phase"):
        values = getattr(edges, name)
        if values is not None and len(values) != len(edges):
            raise ValueError(
                f"{len(values)} values of edge {name} for {len(edges)} edges: give one each, before self-loops are added"
            )
        extended[name] = None if values is None else np.concatenate([values, zeros])
    return in_order(Edges(np.concatenate([edges.source, loops]), np.concatenate([edges.target, loops]), **extended), nodes)


def edge_homophily(edges: Edges, labels: np.ndarray) -> float:
    """Return the fraction of edges, self-loops left out, whose ends have the same label."""
    proper = edges.source != edges.target
    return float((labels[edges.source] == labels[edges.target])[proper].mean())
