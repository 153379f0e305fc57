"""What may be done to node features before training."""

import warnings

import numpy as np
import torch
from torch import Tensor

from datamodules.graphs.prepare import Edges

warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")


def normalize_rows(x_NF: Tensor) -> Tensor:
    """Divide each row by the sum of its absolute values; rows of zeros stay."""
    sums = x_NF.abs().sum(dim=1, keepdim=True)
    return x_NF / torch.where(sums > 0, sums, 1.0)


def appnp_smoothing(x_NF: Tensor, edges: Edges, steps: int = 10, alpha: float = 0.1) -> Tensor:
    r"""Smooth features over the graph by personalised PageRank.

    .. math:: x^{(k+1)} = (1 - \alpha) D^{-1/2} A D^{-1/2} x^{(k)} + \alpha x^{(0)}

    Args:
        x_NF: features, ``[N, F]``.
        edges: the edges of A, with self-loops.
        steps: K.
        alpha: probability α of a return.

    Source: Gasteiger et al. 2019 (arXiv 1810.05997), equation 5.
    """
    nodes = len(x_NF)
    ends_2E = torch.from_numpy(np.stack([edges.target, edges.source]))
    weights = ends_2E[0].bincount(minlength=nodes).to(x_NF.dtype).rsqrt()[ends_2E].prod(dim=0)
    propagation = torch.sparse_coo_tensor(ends_2E, weights, (nodes, nodes), is_coalesced=True, check_invariants=False)
    smooth = x_NF
    for _ in range(steps):
        smooth = (1 - alpha) * (propagation @ smooth) + alpha * x_NF
    return smooth


def in_sparse_rows(x_NF: Tensor) -> Tensor:
    """Return real features as a sparse CSR matrix.

    Raises:
        ValueError: if they are complex.
    """
    if x_NF.is_complex():
        raise ValueError(f"sparse_features needs real features, but they are {x_NF.dtype}: leave it out")
    return x_NF.to_sparse_csr()
