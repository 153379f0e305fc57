"""MagNet: Chebyshev filters of the magnetic Laplacian, which keeps the direction of an edge as a phase."""

import math

import torch
from torch import Tensor, nn

from lightning_modules.gesc.features import project


class MagNet(nn.Module):
    r"""Layers of first-order filters of the magnetic Laplacian, on states with a real and an imaginary part.

    .. math::
        h' = h W_0 + \tilde L h W_1 + b (1 + \mathrm{i}), \qquad
        \tilde L = \tfrac{2}{\lambda_{\max}} L - I = -D_s^{-1/2} A_s D_s^{-1/2} \odot e^{\mathrm{i}\Theta}

    with real W and b, :math:`\lambda_{\max} = 2`, :math:`A_s = (B + B^\top)/2`, :math:`\Theta_{ij} = 2\pi q (B_{ij} - B_{ji})` and
    the directed adjacency B. The network starts with h = x(1 + i); after each layer the complex ReLU keeps the states with a real
    part that is not negative; a linear map reads both parts of the last.

    Args:
        in_channels: features of a node.
        out_channels: classes.
        hidden: width of a part of the states.
        layers: filters.
        dropout: on the input of the linear map.
        q: charge of the phases; 0 forgets the directions.

    Source: Zhang et al. 2021 (arXiv 2102.11391), with K = 1.
    """

    def __init__(
        self, in_channels: int, out_channels: int, hidden: int = 64, layers: int = 2, dropout: float = 0.5, q: float = 0.25
    ) -> None:
        super().__init__()
        self.q, self.dropout = q, dropout
        widths = [in_channels, *[hidden] * layers]
        self.own = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths[:-1], widths[1:], strict=True))
        self.neighbours = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in zip(widths[:-1], widths[1:], strict=True))
        self.classifier = nn.Linear(2 * widths[-1], out_channels)

    def forward(self, x: Tensor, edge_index: Tensor, edge_direction: Tensor | None = None) -> Tensor:
        """Return logits, ``[N, C]``.

        Args:
            x: features, ``[N, F]``.
            edge_index: both directions of every link, rows (source j, target i).
            edge_direction: :math:`B_{ij} - B_{ji}` of each edge, ``[E]``.

        Raises:
            ValueError: if q is not 0 and there are no directions.
        """
        i_E, j_E, real_E, imaginary_E = self.operator(edge_index, len(x), edge_direction, x.dtype)
        real, imaginary = x, x
        for own, neighbours in zip(self.own, self.neighbours, strict=True):
            a, b = _of_both(neighbours, real, imaginary)
            real, imaginary = _of_both(own, real, imaginary)
            a_E, b_E = a[j_E], b[j_E]
            real = real.index_add(0, i_E, real_E * a_E - imaginary_E * b_E)
            imaginary = imaginary.index_add(0, i_E, imaginary_E * a_E + real_E * b_E)
            positive = (real >= 0).to(x.dtype)
            real, imaginary = positive * real, positive * imaginary
        return self.classifier(nn.functional.dropout(torch.cat([real, imaginary], dim=-1), self.dropout, self.training))

    def operator(
        self, edge_index: Tensor, num_nodes: int, edge_direction: Tensor | None, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        r"""Return rows i, columns j, and real and imaginary parts ``[E, 1]`` of :math:`\tilde L`, which has no diagonal."""
        if edge_direction is None and self.q != 0:
            raise ValueError(
                f"MagNet with q={self.q} needs data.edge_direction, but the direction of the edges was discarded: "
                "use a data set with the ending _directed, or magnetic_q=0"
            )
        link_E = edge_index[0] != edge_index[1]
        j_E, i_E = edge_index[:, link_E]
        direction_E = torch.zeros(len(i_E), device=i_E.device) if edge_direction is None else edge_direction[link_E]
        weight_E = (1 - direction_E.abs() / 2).to(dtype)
        degree_N = torch.zeros(num_nodes, dtype=dtype, device=i_E.device).index_add_(0, i_E, weight_E)
        scale_N = torch.where(degree_N > 0, degree_N, 1.0).rsqrt()
        size_E = scale_N[i_E] * weight_E * scale_N[j_E]
        phase_E = 2 * math.pi * self.q * direction_E.to(dtype)
        return i_E, j_E, (-size_E * phase_E.cos())[:, None], (-size_E * phase_E.sin())[:, None]


def _of_both(line: nn.Module, real: Tensor, imaginary: Tensor) -> tuple[Tensor, Tensor]:
    """Apply a linear map to both parts, once if they are the same tensor."""
    image = project(real, line)
    return image, image if imaginary is real else project(imaginary, line)
