r"""Adjacency matrices of a graph as sparse CSR matrices, computed once for each graph.

Legend: N nodes, E edges.
"""

import torch
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import remove_self_loops

from lightning_modules.gesc.graph_memory import remembered


@remembered
def normalised_edges(edge_index: Tensor, num_nodes: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    r"""Return the edges of :math:`A + I`, and their weights in :math:`\tilde D^{-1/2} (A + I) \tilde D^{-1/2}`, ``[E]``.

    Args:
        edge_index: rows (source, target); self-loops that are there are not added again.
        num_nodes: N.
        dtype: of the weights.

    Source: Kipf and Welling 2017 (arXiv 1609.02907).
    """
    return gcn_norm(edge_index, num_nodes=num_nodes, add_self_loops=True, dtype=dtype)


@remembered
def normalised_adjacency(edge_index: Tensor, num_nodes: int, dtype: torch.dtype) -> Tensor:
    r"""Return :math:`\tilde D^{-1/2} (A + I) \tilde D^{-1/2}`, sparse CSR ``[N, N]``; arguments as in ``normalised_edges``."""
    looped_2E, weight_E = normalised_edges(edge_index, num_nodes, dtype)
    return csr_matrix(looped_2E.flip(0), weight_E, num_nodes)


@remembered
def mean_adjacency(edge_index: Tensor, num_nodes: int, dtype: torch.dtype) -> Tensor:
    r"""Return :math:`D^{-1} A` without self-loops, sparse CSR ``[N, N]``; nodes without neighbours have rows of 0."""
    source_E, target_E = remove_self_loops(edge_index)[0]
    degree_N = target_E.bincount(minlength=num_nodes).to(dtype)
    return csr_matrix(torch.stack([target_E, source_E]), degree_N.reciprocal()[target_E], num_nodes)


def csr_matrix(positions_2E: Tensor, values_E: Tensor, num_nodes: int) -> Tensor:
    """Return the sparse CSR matrix ``[N, N]`` with these rows and columns; values at the same position are added."""
    shape = (num_nodes, num_nodes)
    return torch.sparse_coo_tensor(positions_2E, values_E, shape, check_invariants=False).coalesce().to_sparse_csr()
