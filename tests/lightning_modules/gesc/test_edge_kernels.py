import torch
from gauge_graphs import random_graph, random_states

from lightning_modules.gesc.edge_kernels import cancelled_attention
from lightning_modules.gesc.sorted_edges import SortedEdges


def test_gradients_with_dropped_weights_a_gate_and_phases():
    edge_index, theta = random_graph(4, pairs=4, duplicates=1)
    edges, generator = SortedEdges.of(edge_index, 4), torch.Generator().manual_seed(0)
    query, value = (random_states(8, 3, seed=seed).view(2, 4, 3).requires_grad_() for seed in (0, 1))
    gate = torch.rand(len(theta), dtype=torch.float64, generator=generator).requires_grad_()
    keep = torch.rand(2, len(theta), generator=generator) < 0.6

    def attend(query, value, theta, gate):
        return cancelled_attention(query, value, theta, gate, keep, 0.6, 0.7, edges)[0]

    inputs = (query, value, theta.requires_grad_(), gate)
    assert torch.autograd.gradcheck(attend, inputs)
    dropped = attend(*inputs)
    kept = cancelled_attention(*inputs, None, 1.0, 0.7, edges)[0]
    assert (dropped - kept).abs().max() > 1e-2
