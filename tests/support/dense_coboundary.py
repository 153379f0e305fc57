"""The matrix of a sheaf's δ, written edge by edge, and the comparison of a Laplacian with it."""

import torch
from torch import Tensor

from lightning_modules.sheaf_admm.graph import AgentGraph
from lightning_modules.sheaf_admm.laplacian import SheafLaplacian

SAMPLES = 3


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def coboundary(graph: AgentGraph, F_u: Tensor, F_v: Tensor) -> Tensor:
    """The matrix of δ for one sample, written edge by edge from the definition."""
    edges, edge_dim, stalk_dim = F_u.shape
    delta = torch.zeros(edges * edge_dim, graph.num_nodes * stalk_dim, dtype=F_u.dtype)
    for k, (u, v) in enumerate(graph.edge_index.t().tolist()):
        rows = slice(k * edge_dim, (k + 1) * edge_dim)
        delta[rows, u * stalk_dim : (u + 1) * stalk_dim] += F_u[k]
        delta[rows, v * stalk_dim : (v + 1) * stalk_dim] -= F_v[k]
    return delta


def flat(x_NBd: Tensor) -> Tensor:
    """Agent-major vectors, one a sample: ``[B, N*d]``."""
    return x_NBd.transpose(0, 1).flatten(1)


def close(a: Tensor, b: Tensor, tolerance: float = 1e-12) -> None:
    assert a.shape == b.shape
    assert (a - b).abs().max() < tolerance


def check_against_matrix(laplacian: SheafLaplacian, tolerance: float = 1e-12) -> None:
    """Compare every operation of a Laplacian with the dense δ of its edge maps and its mask."""
    graph, mask = laplacian.graph, laplacian.edge_mask
    F_u, F_v = (maps.expand(-1, SAMPLES, -1, -1) for maps in laplacian.edge_maps())
    if mask is not None:
        weight = mask.double().reshape(graph.num_edges, -1).expand(-1, SAMPLES)[..., None, None]
        F_u, F_v = weight * F_u, weight * F_v
    z = randn(graph.num_nodes, SAMPLES, laplacian.stalk_dim, seed=2)
    r = randn(graph.num_edges, SAMPLES, laplacian.edge_dim, seed=3)
    deltas = torch.stack([coboundary(graph, F_u[:, b], F_v[:, b]) for b in range(SAMPLES)])
    times = lambda matrices, x: (matrices @ flat(x).unsqueeze(-1)).squeeze(-1)  # noqa: E731
    close(flat(laplacian.delta(z)), times(deltas, z), tolerance)
    close(flat(laplacian.delta_t(r)), times(deltas.transpose(1, 2), r), tolerance)
    matrix = deltas.transpose(1, 2) @ deltas
    close(flat(laplacian.matvec(z)), times(matrix, z), 10 * tolerance)
    close(laplacian.dense().expand(SAMPLES, -1, -1), matrix, tolerance)
    close(laplacian.energy(z), 0.5 * (flat(z) * times(matrix, z)).sum(1), 100 * tolerance)
    close((laplacian.delta(z) * r).sum((0, 2)), (z * laplacian.delta_t(r)).sum((0, 2)), 100 * tolerance)
