"""Two layers of PyTorch Geometric, computed as products with an adjacency matrix that is made once for each graph.

Parameters and results are those of PyG; features may be sparse, and no message of an edge is ever held.

Legend: N nodes, F features, d output features.
"""

from torch import Tensor
from torch_geometric.nn import GCNConv, SAGEConv

from lightning_modules.gesc.adjacency import mean_adjacency, normalised_adjacency
from lightning_modules.gesc.features import feature_product, project
from lightning_modules.gesc.sparse_product import sparse_product


class NormalisedConv(GCNConv):
    """``GCNConv``: multiply by the weights, and by the symmetrically normalised adjacency with self-loops."""

    def forward(self, x_NF: Tensor, edge_index: Tensor) -> Tensor:
        """Return the new states, ``[N, d]``."""
        adjacency = normalised_adjacency(edge_index, len(x_NF), x_NF.dtype)
        return sparse_product(adjacency, project(x_NF, self.lin)) + self.bias


class MeanConv(SAGEConv):
    r"""``SAGEConv`` with the mean of the neighbours, among which a node itself does not count.

    .. math:: h_i = W_l \operatorname{mean}_{j \to i} x_j + b + W_r x_i

    The mean commutes with :math:`W_l`, so whichever leaves fewer features comes first.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, aggr="mean")

    def forward(self, x_NF: Tensor, edge_index: Tensor) -> Tensor:
        """Return the new states, ``[N, d]``."""
        adjacency = mean_adjacency(edge_index, len(x_NF), x_NF.dtype)
        if x_NF.shape[1] > self.out_channels or x_NF.is_sparse_csr:
            mean_Nd = sparse_product(adjacency, feature_product(x_NF, self.lin_l.weight.t())) + self.lin_l.bias
        else:
            mean_Nd = self.lin_l(sparse_product(adjacency, x_NF))
        return mean_Nd + project(x_NF, self.lin_r)
