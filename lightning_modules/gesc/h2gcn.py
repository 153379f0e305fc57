"""H2GCN: a node's own features, its neighbours' and its neighbours' neighbours', kept apart."""

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

_REMEMBERED = WeakTensorKeyDictionary()


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
        hops = normalised_hops(edge_index, len(x))
        rounds = [self.embedding(x).relu()]
        for _ in range(self.layers):
            rounds.append(torch.cat([torch.sparse.mm(hop.to(x.dtype), rounds[-1]) for hop in hops], dim=-1))
        return self.classifier(nn.functional.dropout(torch.cat(rounds, dim=-1), self.dropout, self.training))


def normalised_hops(edge_index: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    r"""Return :math:`\bar A_1` and :math:`\bar A_2`, sparse ``[N, N]``.

    The answer is remembered for as long as the tensor ``edge_index`` lives and is not written to, so that a graph that is trained
    on for a thousand epochs is squared once. Tensors made in inference mode do not count their changes and are not remembered.

    Args:
        edge_index: rows (source, target); repeated edges count once.
        num_nodes: N.
    """
    if edge_index.is_inference():
        return _normalised_hops(edge_index, num_nodes)
    key = (edge_index._version, num_nodes)
    known = _REMEMBERED.get(edge_index)
    if known is None or known[0] != key:
        with torch.inference_mode(False):
            known = _REMEMBERED[edge_index] = (key, _normalised_hops(edge_index, num_nodes))
    return known[1]


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


@torch.no_grad()
def _normalised_hops(edge_index: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    one_2E, two_2E = exact_hops(edge_index, num_nodes)
    return _normalised(one_2E, num_nodes), _normalised(two_2E, num_nodes)


def _normalised(edges_2E: Tensor, num_nodes: int) -> Tensor:
    """Return the symmetrically normalised adjacency of edges that occur once; nodes without edges have rows of 0."""
    degree_N = edges_2E.new_zeros(num_nodes).index_add_(0, edges_2E[0], torch.ones_like(edges_2E[0]))
    scale_N = degree_N.clamp_min(1).float().rsqrt()
    weight_E = scale_N[edges_2E[0]] * scale_N[edges_2E[1]]
    return torch.sparse_coo_tensor(edges_2E, weight_E, (num_nodes, num_nodes), check_invariants=False).coalesce()
