"""Communities whose node features are seen through a random phase of each node: only phases of edges make them comparable."""

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from datamodules.graphs.block_model import block_model_edges
from datamodules.graphs.graph_data_module import GraphDataModule
from datamodules.graphs.node_graph import NodeGraph
from datamodules.graphs.prepare import Edges, prepare_edges
from datamodules.graphs.splits import random_split


class GaugeSBMDataModule(GraphDataModule):
    r"""A stochastic block model with complex features in a random gauge.

    .. math::
        x_i = e^{i \varphi_i} (\mu_{y_i} + \sigma \varepsilon_i), \qquad \theta_{ij} = \varphi_i - \varphi_j

    with a random phase φ of each node, class means μ and noise ε that are complex Gaussian of variance 1, and the noise level σ.
    A neighbour's features are comparable with a node's own only after transport along the edge: :math:`e^{i \theta_{ij}} x_j`.
    As θ is a pure gauge, a model that respects it decides the same in every gauge. The suite ``regauged`` is the same graph in
    another random gauge, at which ordinary models fail.

    Args:
        nodes: number of nodes, divided evenly into the classes.
        classes: number of classes.
        features: number of complex features.
        degree: mean degree.
        homophily: share of the edges that join nodes of one class.
        noise: σ.
        train_frac: fraction of training nodes.
        val_frac: fraction of validation nodes; the rest is the test.
        generator_seed: seed of the graph, its features and its split, apart from ``seed`` so that runs of several seeds share
            their data.
        regauge_suite: whether there is the suite ``regauged``.
        self_loops: give each node one self-loop.
        num_neighbors: in-neighbours of a node at most, for each hop, -1 for all; None: every batch is the whole graph.
        batch_size: seed nodes of a global batch, with ``num_neighbors``; the whole graph has no use for it.
        num_workers: loader processes per rank, with ``num_neighbors``.
        seed: seed of order and neighbours, with ``num_neighbors``.

    Raises:
        ValueError: if a number has no meaning, or the graph would be too dense.
    """

    smoke = {"nodes": 60, "degree": 6, "batch_size": 6, "num_workers": 0}

    def __init__(
        self,
        nodes: int = 300,
        classes: int = 3,
        features: int = 8,
        degree: float = 8,
        homophily: float = 0.1,
        noise: float = 1.5,
        train_frac: float = 0.5,
        val_frac: float = 0.25,
        generator_seed: int = 0,
        regauge_suite: bool = True,
        self_loops: bool = True,
        num_neighbors: list[int] | None = None,
        batch_size: int | None = None,
        num_workers: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__(num_neighbors, batch_size, num_workers, seed)
        if not 2 <= classes <= nodes or features < 1:
            raise ValueError(
                f"nodes={nodes}, classes={classes}, features={features}: use 2 to {nodes} classes and at least one feature"
            )
        if not 0 <= homophily <= 1 or not degree > 0 or not noise >= 0:
            raise ValueError(
                f"homophily={homophily:g} must be in 0 to 1, degree={degree:g} positive and noise={noise:g} at least 0"
            )
        self.nodes, self.classes, self.features = nodes, classes, features
        self.degree, self.homophily, self.noise = degree, homophily, noise
        self.train_frac, self.val_frac = train_frac, val_frac
        self.generator_seed, self.regauge_suite, self.self_loops = generator_seed, regauge_suite, self_loops

    def suite_names(self) -> list[str]:
        return ["regauged"] if self.regauge_suite else []

    def setup(self, stage: str) -> None:
        """Cut the graph into batches, in both gauges."""
        graph, regauged = self.graphs
        self.use(graph, {"regauged": regauged} if self.regauge_suite else {})

    @cached_property
    def graphs(self) -> tuple[NodeGraph, NodeGraph]:
        """The graph in two gauges, drawn when first asked for."""
        generator = np.random.default_rng(self.generator_seed)
        labels = generator.permutation(np.arange(self.nodes) % self.classes)
        pairs = block_model_edges(labels, self.degree, self.homophily, generator)
        means = _complex_gaussian((self.classes, self.features), generator)
        ungauged = means[labels] + self.noise * _complex_gaussian((self.nodes, self.features), generator)
        gauge, second_gauge = generator.uniform(0, 2 * np.pi, size=(2, self.nodes))
        masks = random_split(self.nodes, self.train_frac, self.val_frac, generator)
        edges = prepare_edges(pairs, self.nodes)
        trivial = NodeGraph(torch.from_numpy(ungauged), torch.from_numpy(labels), edges, masks, self.self_loops)
        return in_gauge(trivial, gauge), in_gauge(trivial, second_gauge)

    def model_arguments(self) -> dict[str, Any]:
        """Number of features and of classes; the features are complex."""
        return super().model_arguments() | {
            "num_features": self.features,
            "num_classes": self.classes,
            "complex_features": True,
        }


def in_gauge(graph: NodeGraph, gauge_N: np.ndarray) -> NodeGraph:
    """Multiply the features of a graph without phases by ``exp(i φ)`` and give the edge j -> i the phase ``φ_i - φ_j``."""
    edges = graph.edges
    phase = (gauge_N[edges.target] - gauge_N[edges.source]).astype(np.float32)
    x = graph.x * torch.from_numpy(np.exp(1j * gauge_N))[:, None]
    return replace(graph, x=x.to(torch.complex64), edges=Edges(edges.source, edges.target, edges.direction, phase))


def _complex_gaussian(shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    """Draw complex numbers whose real and imaginary parts have variance 1/2."""
    real, imaginary = generator.standard_normal((2, *shape))
    return (real + 1j * imaginary) / np.sqrt(2)
