"""Node-classification benchmarks, most of them heterophilous: linked nodes often differ in their label."""

from functools import cached_property
from typing import Any, Literal

import torch

from datamodules.graphs.catalogue import is_directed
from datamodules.graphs.features import appnp_smoothing, in_sparse_rows, normalize_rows
from datamodules.graphs.graph_data_module import GraphDataModule
from datamodules.graphs.node_graph import NodeGraph
from datamodules.graphs.node_sets import feature_and_class_counts, load_node_set, prepare_node_set
from datamodules.graphs.prepare import prepare_edges, with_self_loops
from datamodules.graphs.splits import choose_split


class HeterophilousGraphDataModule(GraphDataModule):
    """Cora, Chameleon, Texas and their like, or a graph of your own, from files.

    Args:
        name: ``actor``, ``chameleon``, ``squirrel`` (each also with ``_filtered``), ``cornell``, ``cornell_geom``, ``texas``,
            ``wisconsin``, ``cora``, ``citeseer`` or ``pubmed``. With ``_directed`` after them, Chameleon and Squirrel, filtered or
            not, ``cornell_geom``, ``texas`` and ``wisconsin`` tell the direction of each edge. Any other name belongs to a file of
            your own.
        root: folder that is searched first and keeps downloads, or an ``.npz`` file of your own with the keys ``node_features``,
            ``node_labels``, ``edges`` and, for numbered splits, ``train_masks``, ``val_masks``, ``test_masks``.
        split: number of a split in the files, ``public`` for citation graphs, or ``random``.
        train_frac: fraction of training nodes of a random split.
        val_frac: its fraction of validation nodes.
        seed: seed of a random split, and with ``num_neighbors`` of order and neighbours.
        undirected: add the reverse of each edge; without it only a ``_directed`` set makes sense.
        self_loops: give each node one self-loop.
        normalize_features: divide the features of each node by their sum.
        preprop: ``appnp`` smooths the features over the graph beforehand (10 steps, α = 0.1).
        sparse_features: give the features as a sparse CSR matrix, with which the models here train several times faster where most
            features are 0; only for whole graphs.
        num_neighbors: in-neighbours of a node at most, for each hop, -1 for all; None: every batch is the whole graph.
        batch_size: seed nodes of a global batch, with ``num_neighbors``; the whole graph has no use for it.
        num_workers: loader processes per rank, with ``num_neighbors``.

    Raises:
        ValueError: if edges without a direction shall stay as they are, ``preprop`` is unknown, or features shall be sparse and
            neighbours sampled.
    """

    smoke = {"name": "texas_directed", "split": 0, "batch_size": 16, "num_workers": 0}

    def __init__(
        self,
        name: str,
        root: str | None = None,
        split: int | Literal["public", "random"] = 0,
        train_frac: float = 0.48,
        val_frac: float = 0.32,
        seed: int = 0,
        undirected: bool = True,
        self_loops: bool = True,
        normalize_features: bool = False,
        preprop: Literal["appnp"] | None = None,
        sparse_features: bool = False,
        num_neighbors: list[int] | None = None,
        batch_size: int | None = None,
        num_workers: int = 0,
    ) -> None:
        super().__init__(num_neighbors, batch_size, num_workers, seed)
        if not undirected and not is_directed(name):
            raise ValueError(f"{name} has no directions, so that undirected=False has no meaning: use a set named *_directed")
        if preprop not in (None, "appnp"):
            raise ValueError(f"preprop={preprop!r} is unknown, use appnp or leave it out")
        if sparse_features and num_neighbors is not None:
            raise ValueError(f"sparse_features needs whole graphs, but num_neighbors={num_neighbors}: leave one of them out")
        self.set_name, self.root, self.split = name, root, split
        self.train_frac, self.val_frac = train_frac, val_frac
        self.undirected, self.self_loops = undirected, self_loops
        self.normalize_features, self.preprop, self.sparse_features = normalize_features, preprop, sparse_features

    def prepare_data(self) -> None:
        """Download the files if they are in none of the data folders."""
        prepare_node_set(self.set_name, self.root, numbered_splits=isinstance(self.split, int))

    def setup(self, stage: str) -> None:
        """Cut the graph into batches."""
        self.use(self.graph)

    @cached_property
    def graph(self) -> NodeGraph:
        """The graph and the split, read when first asked for."""
        graph = load_node_set(self.set_name, self.root)
        nodes = len(graph.labels)
        edges = prepare_edges(graph.edges, nodes, is_directed(self.set_name), self.undirected)
        x = torch.from_numpy(graph.features)
        if self.normalize_features:
            x = normalize_rows(x)
        if self.preprop:
            x = appnp_smoothing(x, with_self_loops(edges, nodes))
        if self.sparse_features:
            x = in_sparse_rows(x)
        masks = choose_split(graph, self.split, self.set_name, self.train_frac, self.val_frac, self.seed)
        return NodeGraph(x, torch.from_numpy(graph.labels), edges, masks, self.self_loops)

    def model_arguments(self) -> dict[str, Any]:
        """Number of features and of classes; the features are real."""
        features, classes = feature_and_class_counts(self.set_name, self.root)
        return super().model_arguments() | {"num_features": features, "num_classes": classes, "complex_features": False}
