"""A labelled graph as arrays, and the checks that it must pass."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class Masks(NamedTuple):
    """One split of the nodes: three bool arrays ``[N]``."""

    train: np.ndarray
    val: np.ndarray
    test: np.ndarray


@dataclass(frozen=True)
class GraphArrays:
    """A graph as its files hold it.

    Attributes:
        features: float32 ``[N, F]``.
        labels: int64 ``[N]`` from 0 to ``classes - 1``.
        edges: int64 ``[E, 2]``, rows (a, b) for an edge from a to b; undirected edges stand in it once or twice.
        classes: number of classes.
        splits: the numbered splits of the files.
        public: the public split, for the citation graphs.
    """

    features: np.ndarray
    labels: np.ndarray
    edges: np.ndarray
    classes: int
    splits: tuple[Masks, ...] = ()
    public: Masks | None = None


def check_graph(graph: GraphArrays, what: str) -> None:
    """Refuse arrays that do not fit together.

    Args:
        graph: the graph.
        what: what it is called in an error.

    Raises:
        ValueError: for wrong shapes, features that are not finite, labels outside 0..C-1 or edges to missing nodes, with counts.
    """
    nodes = len(graph.labels)
    if graph.features.ndim != 2 or graph.labels.ndim != 1 or len(graph.features) != nodes or not nodes:
        raise ValueError(
            f"{what} has features of shape {list(graph.features.shape)} and labels of shape {list(graph.labels.shape)}: "
            "expected [nodes, features] and [nodes]"
        )
    if graph.edges.ndim != 2 or graph.edges.shape[1] != 2:
        raise ValueError(f"{what} has edges of shape {list(graph.edges.shape)}: expected [edges, 2]")
    if broken := int((~np.isfinite(graph.features)).sum()):
        rows = int((~np.isfinite(graph.features)).any(axis=1).sum())
        raise ValueError(f"{what} has {broken} features that are NaN or infinite, in {rows} of {nodes} nodes: fill them in first")
    outside = (graph.labels < 0) | (graph.labels >= graph.classes)
    if outside.any():
        raise ValueError(
            f"{what} has {outside.sum()} of {nodes} labels outside 0..{graph.classes - 1}, from {graph.labels.min()} to "
            f"{graph.labels.max()}: number the {graph.classes} classes from 0"
        )
    missing = ((graph.edges < 0) | (graph.edges >= nodes)).any(axis=1)
    if missing.any():
        raise ValueError(f"{what} has {missing.sum()} of {len(graph.edges)} edges to nodes outside 0..{nodes - 1}")


def check_masks(masks: Masks, nodes: int, what: str) -> None:
    """Refuse masks of a wrong shape, masks that overlap and masks without a node.

    Raises:
        ValueError: with the counts.
    """
    for name, mask in masks._asdict().items():
        if mask.shape != (nodes,) or mask.dtype != bool:
            raise ValueError(f"the {name} mask of {what} is {mask.dtype} {list(mask.shape)}: expected bool [{nodes}]")
    for one, other in (("train", "val"), ("train", "test"), ("val", "test")):
        if shared := int((getattr(masks, one) & getattr(masks, other)).sum()):
            raise ValueError(
                f"the {one} and {other} masks of {what} share {shared} of {nodes} nodes: a node belongs to one of them"
            )
    counts = {name: int(mask.sum()) for name, mask in masks._asdict().items()}
    if empty := [name for name, count in counts.items() if not count]:
        raise ValueError(f"the {empty[0]} mask of {what} is empty ({counts}): choose another split")
