import numpy as np
import pytest
import torch
from torch_geometric.nn import APPNP

from datamodules.graphs.features import appnp_smoothing, normalize_rows
from datamodules.graphs.prepare import prepare_edges, with_self_loops


def test_rows_sum_to_one():
    x = torch.tensor([[1.0, 3.0], [0.0, 0.0], [-1.0, 1.0], [0.25, 0.0]])
    assert normalize_rows(x).tolist() == [[0.25, 0.75], [0, 0], [-0.5, 0.5], [1, 0]]


def test_smoothing_equals_pyg():
    pairs = np.random.default_rng(0).integers(20, size=(40, 2))
    edges = prepare_edges(pairs, 20)
    x = torch.randn(20, 5, generator=torch.Generator().manual_seed(0))
    expected = APPNP(K=7, alpha=0.3)(x, torch.from_numpy(np.stack([edges.source, edges.target])))
    smooth = appnp_smoothing(x, with_self_loops(edges, 20), steps=7, alpha=0.3)
    torch.testing.assert_close(smooth, expected)
    assert (smooth - x).abs().max() > 0.1


def test_smoothing_keeps_an_isolated_node():
    edges = with_self_loops(prepare_edges(np.array([[0, 1]]), 3), 3)
    x = torch.tensor([[1.0], [0.0], [5.0]])
    smooth = appnp_smoothing(x, edges)
    assert smooth[2].item() == pytest.approx(5.0)
    assert 0 < smooth[1].item() < smooth[0].item() < 1
