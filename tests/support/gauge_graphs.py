"""Small graphs with a connection, for tests of gauge-equivariant layers."""

import torch


def random_graph(num_nodes=12, pairs=20, seed=0, dtype=torch.float64, isolated=False, duplicates=0):
    """Return ``edge_index`` (both directions, self-loops, sorted by target then source) and antisymmetric phases.

    Args:
        num_nodes: nodes.
        pairs: undirected edges, drawn with replacement.
        seed: seed of the draw.
        dtype: dtype of the phases.
        isolated: leave the last node with its self-loop only.
        duplicates: undirected edges that are stored twice.
    """
    generator = torch.Generator().manual_seed(seed)
    ends = torch.stack([torch.randperm(num_nodes - isolated, generator=generator)[:2] for _ in range(pairs)], dim=1)
    phase = 2 * torch.rand(pairs, generator=generator, dtype=dtype) - 1
    ends, phase = torch.cat([ends, ends[:, :duplicates]], 1), torch.cat([phase, phase[:duplicates]])
    loops = torch.arange(num_nodes)
    edge_index = torch.cat([ends, ends.flip(0), loops.expand(2, -1)], dim=1)
    theta = torch.cat([phase, -phase, torch.zeros(num_nodes, dtype=dtype)])
    order = torch.argsort(edge_index[1] * num_nodes + edge_index[0], stable=True)
    return edge_index[:, order], theta[order]


def random_states(num_nodes, channels, seed=0, dtype=torch.complex128):
    """Return complex Gaussian states ``[N, d]``."""
    return torch.randn(num_nodes, channels, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def random_angles(num_nodes, seed=0, dtype=torch.float64):
    """Return an angle for each node, uniform in [0, 2π)."""
    return 2 * torch.pi * torch.rand(num_nodes, dtype=dtype, generator=torch.Generator().manual_seed(seed))
