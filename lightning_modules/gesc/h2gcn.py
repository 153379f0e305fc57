"""H2GCN: a node's own features, its neighbours' and its neighbours' neighbours', kept apart."""

import torch
from torch import Tensor, nn

from lightning_modules.gesc.adjacency import csr_matrix
from lightning_modules.gesc.features import project
from lightning_modules.gesc.graph_memory import remembered
from lightning_modules.gesc.sparse_product import sparse_product

DENSE_SHARE = 0.1
"""Matrices with a larger share of entries that are not 0 are multiplied as dense ones."""


class H2GCN(nn.Module):
    r"""H2GCN with two rounds of aggregation.

    .. math::
        r_0 = \mathrm{ReLU}(x W_e), \qquad r_k = \bigl[\bar A_1 r_{k-1} \,\|\, \bar A_2 r_{k-1}\bigr], \qquad
        \text{logits} = [r_0 \| r_1 \| \dots \| r_K]\, W_c

    with :math:`\bar A_h = D_h^{-1/2} A_h D_h^{-1/2}` over the nodes at distance exactly h. The rounds have no weights, no
    nonlinearity and no self-loops; those of ``edge_index`` are left out.

    Args:
        in_channels: features of a node.
        out_channels: classes.
        hidden: width of :math:`r_0`.
        layers: rounds K.
        dropout: on the input of the classifier.

    Source: Zhu et al. 2020 (arXiv 2006.11468).
    """

    def __init__(self, in_channels: int, out_channels: int, hidden: int = 64, layers: int = 2, dropout: float = 0.5) -> None:
        super().__init__()
        self.layers, self.dropout = layers, dropout
        self.embedding = nn.Linear(in_channels, hidden)
        self.classifier = nn.Linear(hidden * (2 ** (layers + 1) - 1), out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return logits, ``[N, C]``."""
        hops = normalised_hops(edge_index, len(x), x.dtype)
        rounds = [project(x, self.embedding).relu()]
        for _ in range(self.layers):
            rounds.append(torch.cat([_product(hop, rounds[-1]) for hop in hops], dim=-1))
        return self.classifier(nn.functional.dropout(torch.cat(rounds, dim=-1), self.dropout, self.training))


@remembered
def normalised_hops(edge_index: Tensor, num_nodes: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    r"""Return :math:`\bar A_1` and :math:`\bar A_2`, ``[N, N]``: sparse CSR, or dense where that is faster and no larger.

    Args:
        edge_index: rows (source, target); repeated edges count once.
        num_nodes: N.
        dtype: of the matrices.
    """
    one_2E, two_2E = exact_hops(edge_index, num_nodes)
    return _normalised(one_2E, num_nodes, dtype), _normalised(two_2E, num_nodes, dtype)


def exact_hops(edge_index: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Return the edges between nodes at distance exactly 1 and exactly 2, each ``[2, E]`` with rows (target, source)."""
    source_E, target_E = edge_index
    one_E = (target_E * num_nodes + source_E)[source_E != target_E].unique()
    one_2E = torch.stack([one_E // num_nodes, one_E % num_nodes])
    adjacency = torch.sparse_coo_tensor(
        one_2E, torch.ones(len(one_E), device=one_E.device), (num_nodes, num_nodes), check_invariants=False
    ).coalesce()
    walks_2E = torch.sparse.mm(adjacency, adjacency).coalesce().indices()
    near_E = walks_2E[0] * num_nodes + walks_2E[1]
    two_E = (walks_2E[0] != walks_2E[1]) & ~torch.isin(near_E, one_E)
    return one_2E, walks_2E[:, two_E]


def _normalised(edges_2E: Tensor, num_nodes: int, dtype: torch.dtype) -> Tensor:
    """Return the symmetrically normalised adjacency of edges that occur once; nodes without edges have rows of 0."""
    degree_N = edges_2E.new_zeros(num_nodes).index_add_(0, edges_2E[0], torch.ones_like(edges_2E[0]))
    scale_N = degree_N.clamp_min(1).to(dtype).rsqrt()
    matrix = csr_matrix(edges_2E, scale_N[edges_2E[0]] * scale_N[edges_2E[1]], num_nodes)
    return matrix.to_dense() if edges_2E.shape[1] > DENSE_SHARE * num_nodes**2 else matrix


def _product(matrix_NN: Tensor, states_Nd: Tensor) -> Tensor:
    return matrix_NN @ states_Nd if matrix_NN.layout == torch.strided else sparse_product(matrix_NN, states_Nd)
