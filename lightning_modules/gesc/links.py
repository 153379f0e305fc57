"""Links of a graph: both directions of an edge as one.

Legend: N nodes, E edges, L links.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from lightning_modules.gesc.graph_memory import remembered


class Links(NamedTuple):
    """Pairs of nodes that an edge joins in either direction.

    Attributes:
        ends: both nodes, the lower number first, ``[2, L]``.
        link: the link of each edge, ``[E]``.
        sign: 1 for an edge from the lower to the higher number, -1 for its reverse, 0 for a self-loop, int64 ``[E]``.
    """

    ends: Tensor
    link: Tensor
    sign: Tensor


@remembered
def links_of(edge_index: Tensor, num_nodes: int) -> Links:
    """Return the links of the edges, ``[2, E]`` with rows (source, target)."""
    source_E, target_E = edge_index
    codes_E = torch.minimum(source_E, target_E) * num_nodes + torch.maximum(source_E, target_E)
    codes_L, link_E = codes_E.unique(return_inverse=True)
    ends_2L = torch.stack([codes_L // num_nodes, codes_L % num_nodes])
    return Links(ends_2L, link_E, (target_E - source_E).sign())
