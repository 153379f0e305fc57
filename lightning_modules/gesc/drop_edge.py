"""DropEdge: leave out some links of a graph while a network trains."""

import copy

import torch
from torch import Tensor
from torch_geometric.data import Data

from lightning_modules.gesc.links import links_of


def drop_edges(data: Data, probability: float) -> Data:
    """Return the graph without some of its links; both directions of a link stay or go together, and self-loops stay.

    Edge phases and directions go with their edges, so phases that were antisymmetric are so afterwards.

    Args:
        data: a graph with ``edge_index`` and maybe ``edge_phase`` and ``edge_direction``; it is not changed.
        probability: of a link to be left out.

    Source: Rong et al. 2020 (arXiv 1907.10903).
    """
    if probability == 0:
        return data
    source_E, target_E = data.edge_index
    kept_E = (source_E == target_E) | (_draws(data.edge_index, int(data.num_nodes or 0)) >= probability)
    thinned = copy.copy(data)
    thinned.edge_index = data.edge_index[:, kept_E]
    for name in ("edge_phase", "edge_direction"):
        if (values_E := data.get(name)) is not None:
            thinned[name] = values_E[kept_E]
    return thinned


def _draws(edge_index: Tensor, nodes: int) -> Tensor:
    """Return a uniform number for each edge, the same for both directions of a link."""
    links = links_of(edge_index, nodes)
    return torch.rand(links.ends.shape[1], device=edge_index.device)[links.link]
