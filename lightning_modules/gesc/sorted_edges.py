"""Edges in the order that sparse products need: by target for what a node receives, by source for what it sends.

Legend: N nodes, E edges.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from lightning_modules.gesc.graph_memory import remembered


@dataclass
class SortedEdges:
    """The edges of a graph sorted by target, and, once a backward pass asks, by source.

    Attributes:
        num_nodes: N.
        source, target: ends of each edge, ``[E]``, sorted by target.
        incoming: the edges into node i are ``incoming[i] .. incoming[i + 1]``, ``[N + 1]``.
        order: positions in the given edge list, ``[E]``; None if that was sorted by target.
    """

    num_nodes: int
    source: Tensor
    target: Tensor
    incoming: Tensor
    order: Tensor | None = None
    _copies: dict[int, SortedEdges] = field(default_factory=dict, repr=False)

    @classmethod
    @torch.compiler.disable
    def of(cls, edge_index: Tensor, num_nodes: int) -> SortedEdges:
        """Sort ``edge_index``, ``[2, E]`` with rows (source, target).

        On a CPU a list that is sorted by target is found to be so and kept; elsewhere it is always sorted, because asking would
        make the host wait for the device.
        """
        source, target = edge_index.contiguous()
        order = None
        if target.device.type != "cpu" or bool((target[1:] < target[:-1]).any()):
            order = torch.argsort(target, stable=True)
            source, target = source[order], target[order]
        return cls(num_nodes, source, target, starts(target, num_nodes), order)

    @cached_property
    def by_source(self) -> Tensor:
        """Positions of the edges of this object, sorted by source, ``[E]``."""
        return torch.argsort(self.source, stable=True)

    @cached_property
    def outgoing(self) -> Tensor:
        """In the order ``by_source`` the edges out of node j are ``outgoing[j] .. outgoing[j + 1]``, ``[N + 1]``."""
        return starts(self.source[self.by_source], self.num_nodes)

    @cached_property
    def receiver(self) -> Tensor:
        """Target of each edge in the order ``by_source``, ``[E]``."""
        return self.target[self.by_source]

    def copies(self, count: int) -> SortedEdges:
        """Return the edges of ``count`` copies of the graph side by side; node n of copy m is ``m N + n``."""
        if count not in self._copies:
            self._copies[count] = _Copies(self, count)
        return self._copies[count]

    def sort(self, values_E: Tensor) -> Tensor:
        """Bring values of the given edges, ``[E, ...]``, into the order of this object."""
        return values_E if self.order is None else values_E.index_select(0, self.order)

    def unsort(self, values_E: Tensor) -> Tensor:
        """Bring values in the order of this object, ``[E, ...]``, back into the given order."""
        if self.order is None:
            return values_E
        return torch.empty_like(values_E).index_copy_(0, self.order, values_E)


class _Copies(SortedEdges):
    """Copies of a graph side by side, whose order by source is that of the graph."""

    def __init__(self, graph: SortedEdges, count: int) -> None:
        self.graph, self.count = graph, count
        num_nodes, num_edges = graph.num_nodes, len(graph.source)
        starts = torch.cat([self._shifted(graph.incoming[:-1], num_edges), graph.incoming.new_full((1,), count * num_edges)])
        super().__init__(count * num_nodes, self._shifted(graph.source, num_nodes), self._shifted(graph.target, num_nodes), starts)

    @cached_property
    def by_source(self) -> Tensor:
        return self._shifted(self.graph.by_source, len(self.graph.source))

    def _shifted(self, index: Tensor, step: int) -> Tensor:
        """Return the copies of an index one after the other, each ``step`` more than the one before."""
        return (torch.arange(self.count, device=index.device).unsqueeze(1) * step + index).flatten()


@remembered
def sorted_edges(edge_index: Tensor, num_nodes: int) -> SortedEdges:
    """Return ``SortedEdges.of(edge_index, num_nodes)``, sorted once for each graph."""
    return SortedEdges.of(edge_index.clone(), num_nodes)


def starts(sorted_E: Tensor, num_nodes: int) -> Tensor:
    """Return the position of the first entry that is at least n, for n = 0..N."""
    return torch.searchsorted(sorted_E, torch.arange(num_nodes + 1, device=sorted_E.device))
