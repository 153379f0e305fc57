"""The networks that GESC is compared with, as plain modules ``(x, edge_index) -> logits``.

Features ``[N, F]`` are dense or sparse CSR. Graphs may or may not hold self-loops: every network here adds or removes them as its
paper does, and none twice.
"""

from torch import Tensor, nn
from torch_geometric.nn import FAConv, GATConv

from lightning_modules.gesc.adjacency import normalised_edges
from lightning_modules.gesc.convolutions import MeanConv, NormalisedConv
from lightning_modules.gesc.features import drop_features, project


class MLP(nn.Module):
    """A perceptron that sees no edges: dropout before every linear layer, ReLU between them.

    Args:
        in_channels: features of a node.
        out_channels: classes.
        hidden: width.
        layers: linear layers.
        dropout: share of the inputs of each layer that are left out.
    """

    def __init__(self, in_channels: int, out_channels: int, hidden: int = 64, layers: int = 2, dropout: float = 0.5) -> None:
        super().__init__()
        widths = [in_channels, *[hidden] * (layers - 1), out_channels]
        self.lines = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths[:-1], widths[1:], strict=True))
        self.dropout = dropout

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return logits, ``[N, C]``."""
        for number, line in enumerate(self.lines):
            x = project(drop_features(x if number == 0 else x.relu(), self.dropout, self.training), line)
        return x


class GCN(nn.Module):
    """Layers of ``GCNConv``, arguments as in ``MLP``. Source: Kipf and Welling 2017 (arXiv 1609.02907)."""

    def __init__(self, in_channels: int, out_channels: int, hidden: int = 64, layers: int = 2, dropout: float = 0.5) -> None:
        super().__init__()
        widths = [in_channels, *[hidden] * (layers - 1), out_channels]
        self.convolutions = nn.ModuleList(NormalisedConv(a, b) for a, b in zip(widths[:-1], widths[1:], strict=True))
        self.dropout = dropout

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return logits, ``[N, C]``."""
        for number, convolution in enumerate(self.convolutions):
            x = convolution(drop_features(x if number == 0 else x.relu(), self.dropout, self.training), edge_index)
        return x


class GraphSAGE(nn.Module):
    """Layers of ``SAGEConv`` with the mean, arguments as in ``MLP``; a node is not its own neighbour.

    Source: Hamilton et al. 2017 (arXiv 1706.02216).
    """

    def __init__(self, in_channels: int, out_channels: int, hidden: int = 64, layers: int = 2, dropout: float = 0.5) -> None:
        super().__init__()
        widths = [in_channels, *[hidden] * (layers - 1), out_channels]
        self.convolutions = nn.ModuleList(MeanConv(a, b) for a, b in zip(widths[:-1], widths[1:], strict=True))
        self.dropout = dropout

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return logits, ``[N, C]``."""
        for number, convolution in enumerate(self.convolutions):
            x = convolution(drop_features(x if number == 0 else x.relu(), self.dropout, self.training), edge_index)
        return x


class GAT(nn.Module):
    """Layers of PyG's ``GATConv`` with ELU between them; the last has one head.

    Args:
        in_channels: features of a node.
        out_channels: classes.
        hidden: width of all heads together.
        layers: attention layers.
        dropout: of features and of attention.
        heads: heads of all layers but the last.

    Raises:
        ValueError: if the heads cannot share the width equally.

    Source: Veličković et al. 2018 (arXiv 1710.10903).
    """

    def __init__(
        self, in_channels: int, out_channels: int, hidden: int = 64, layers: int = 2, dropout: float = 0.5, heads: int = 8
    ) -> None:
        super().__init__()
        if hidden % heads:
            raise ValueError(f"hidden={hidden} of GAT must be a multiple of its heads={heads}")
        widths = [in_channels, *[hidden] * (layers - 1)]
        inner = [GATConv(width, hidden // heads, heads, dropout=dropout) for width in widths[:-1]]
        self.convolutions = nn.ModuleList([*inner, GATConv(widths[-1], out_channels, dropout=dropout)])
        self.dropout = dropout

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return logits, ``[N, C]``."""
        for number, convolution in enumerate(self.convolutions):
            x = x if number == 0 else nn.functional.elu(x)
            x = convolution(drop_features(x, self.dropout, self.training), edge_index)
        return x


class FAGCN(nn.Module):
    r"""A linear embedding, layers of PyG's ``FAConv``, and a linear classifier.

    .. math::
        h'_i = \epsilon h^{(0)}_i + \sum_j \frac{\tanh(a_l^\top h_i + a_r^\top h_j)}{\sqrt{d_i d_j}} h_j

    Args:
        in_channels: features of a node.
        out_channels: classes.
        hidden: width.
        layers: rounds of aggregation.
        dropout: of features, before and after the embedding, and of attention.
        eps: weight of the first states.

    Source: Bo et al. 2021 (arXiv 2101.00797).
    """

    def __init__(
        self, in_channels: int, out_channels: int, hidden: int = 64, layers: int = 2, dropout: float = 0.5, eps: float = 0.3
    ) -> None:
        super().__init__()
        self.embedding = nn.Linear(in_channels, hidden)
        self.convolutions = nn.ModuleList(FAConv(hidden, eps=eps, dropout=dropout, normalize=False) for _ in range(layers))
        self.classifier = nn.Linear(hidden, out_channels)
        self.dropout = dropout

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return logits, ``[N, C]``."""
        first = project(drop_features(x, self.dropout, self.training), self.embedding).relu()
        first = x = nn.functional.dropout(first, self.dropout, self.training)
        looped_2E, weight_E = normalised_edges(edge_index, len(x), x.dtype)
        for convolution in self.convolutions:
            x = convolution(x, first, looped_2E, weight_E)
        return self.classifier(x)
