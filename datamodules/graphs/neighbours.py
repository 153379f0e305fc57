"""Draw some in-neighbours of each node, hop by hop, without a loop over nodes."""

from collections.abc import Sequence

import numpy as np

from datamodules.graphs.prepare import Edges

SEGMENT_BITS = 24


class NeighbourSampler:
    """Uniform neighbour sampling without replacement on edges sorted by target.

    Each edge gets a pseudo-random key, a hash of its position and the salt of the batch, and a node keeps the edges with the
    smallest keys: a uniform draw. As the key does not depend on who asks, a node has the same neighbours in every batch of equal
    salt. So with the same fan-out at every hop, what a network of as many layers computes at a seed node from incoming edges does
    not depend on how the seed nodes are shared by the ranks.

    Args:
        edges: sorted edges without self-loops.
        nodes: number of nodes.
        fan_outs: for each hop, how many in-neighbours a node keeps at most; -1 keeps all.

    Raises:
        ValueError: if there is no hop, or a fan-out is neither positive nor -1.

    Source: Hamilton et al. 2017 (GraphSAGE, arXiv 1706.02216), section 3.
    """

    def __init__(self, edges: Edges, nodes: int, fan_outs: Sequence[int]) -> None:
        check_fan_outs(fan_outs)
        self.edges, self.nodes, self.fan_outs = edges, nodes, tuple(fan_outs)
        self.starts = np.concatenate([[0], np.cumsum(np.bincount(edges.target, minlength=nodes))])

    def sample(self, seeds: np.ndarray, salt: np.uint64) -> tuple[np.ndarray, np.ndarray]:
        """Return the nodes that are reached, ``[n]``, the seeds first, and the positions of the drawn edges, ``[m]``."""
        reached = np.zeros(self.nodes, dtype=bool)
        reached[seeds] = True
        frontier, nodes, positions = seeds, [seeds], []
        for fan_out in self.fan_outs:
            drawn = self.incoming(frontier, fan_out, salt)
            sources = np.unique(self.edges.source[drawn])
            frontier = sources[~reached[sources]]
            reached[frontier] = True
            nodes.append(frontier)
            positions.append(drawn)
        return np.concatenate(nodes), np.concatenate(positions)

    def subgraph(self, seeds: np.ndarray, salt: np.uint64) -> tuple[np.ndarray, Edges]:
        """Return the nodes, the seeds first, and the drawn edges between them with the ends renumbered."""
        nodes, positions = self.sample(seeds, salt)
        place = np.empty(self.nodes, dtype=np.int64)
        place[nodes] = np.arange(len(nodes))
        drawn = self.edges.at(positions)
        return nodes, Edges(place[drawn.source], place[drawn.target], drawn.direction, drawn.phase)

    def incoming(self, nodes: np.ndarray, fan_out: int, salt: np.uint64) -> np.ndarray:
        """Return the positions of at most ``fan_out`` edges into each of ``nodes``."""
        degrees = self.starts[nodes + 1] - self.starts[nodes]
        if fan_out == -1:
            return _spread(self.starts[nodes], degrees)
        few = degrees <= fan_out
        whole = _spread(self.starts[nodes[few]], degrees[few])
        many, lengths = nodes[~few], degrees[~few]
        positions = _spread(self.starts[many], lengths)
        order = np.argsort(_segments(lengths) << np.uint64(64 - SEGMENT_BITS) | hashed(positions, salt) >> np.uint64(SEGMENT_BITS))
        smallest = order[_spread(np.cumsum(lengths) - lengths, np.full_like(lengths, fan_out))]
        return np.concatenate([whole, positions[smallest]])


def check_fan_outs(fan_outs: Sequence[int]) -> None:
    """Refuse an empty list, and numbers that are neither positive nor -1."""
    if not fan_outs or any(fan_out < 1 and fan_out != -1 for fan_out in fan_outs):
        raise ValueError(f"num_neighbors={list(fan_outs)} must name a positive number of neighbours for each hop, or -1 for all")


def hashed(positions: np.ndarray, salt: np.uint64) -> np.ndarray:
    """Return uint64 keys: the generator splitmix64 (Steele et al. 2014) started anew at each position."""
    mixed = positions.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + salt
    mixed = (mixed ^ mixed >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return mixed ^ mixed >> np.uint64(31)


def _spread(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return ``start, start + 1, …`` of each segment, one segment after the other."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths)


def _segments(lengths: np.ndarray) -> np.ndarray:
    return np.repeat(np.arange(len(lengths), dtype=np.uint64), lengths)
