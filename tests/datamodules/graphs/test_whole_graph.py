import numpy as np
import pytest
import torch
from torch import nn

from datamodules.base import BatchKey
from datamodules.graphs.graph_arrays import Masks
from datamodules.graphs.node_graph import NodeGraph
from datamodules.graphs.prepare import Edges, prepare_edges
from datamodules.graphs.whole_graph import WholeGraph

STAGES = ("train_mask", "val_mask", "test_mask")


def graph(nodes: int = 30, self_loops: bool = True) -> NodeGraph:
    generator = np.random.default_rng(0)
    kind = generator.permutation(np.arange(nodes) % 3)
    edges = prepare_edges(generator.integers(nodes, size=(60, 2)), nodes, directed=True)
    phase = generator.standard_normal(len(edges)).astype(np.float32)
    x = torch.from_numpy(generator.standard_normal((nodes, 4)).astype(np.float32))
    y = torch.from_numpy(generator.integers(3, size=nodes))
    edges = Edges(edges.source, edges.target, edges.direction, phase)
    return NodeGraph(x, y, edges, Masks(*(kind == number for number in range(3))), self_loops)


def of_rank(whole: WholeGraph, rank: int):
    return whole[BatchKey(0, 0, np.arange(whole.processes), slice(rank, None, whole.processes))]


def test_one_process():
    source = graph()
    data = of_rank(WholeGraph(source), 0)
    assert (data.x.dtype, data.y.dtype, data.edge_index.dtype) == (torch.float32, torch.int64, torch.int64)
    assert (data.edge_phase.dtype, data.edge_direction.dtype) == (torch.float32, torch.float32)
    assert data.edge_index.shape[1] == len(source.edges) + 30 == len(data.edge_phase) == len(data.edge_direction)
    code = data.edge_index[1] * 30 + data.edge_index[0]
    assert (code.diff() > 0).all(), "sorted by target, then by source, and no edge twice"
    loops = data.edge_index[0] == data.edge_index[1]
    assert sorted(data.edge_index[0, loops].tolist()) == list(range(30))
    assert (data.edge_phase[loops] == 0).all()
    assert data.edge_phase[~loops].tolist() == source.edges.phase.tolist()
    for stage in STAGES:
        assert data[stage].tolist() == getattr(source.masks, stage.removesuffix("_mask")).tolist()
    assert data.labelled_mask.equal(data.train_mask)
    assert data.loss_scale.item() == 1
    assert data.loss_scale.shape == ()
    assert data.loss_scale.dtype == torch.float32


def test_without_self_loops():
    data = of_rank(WholeGraph(graph(self_loops=False)), 0)
    assert (data.edge_index[0] != data.edge_index[1]).all()
    assert (data.edge_index[1].diff() >= 0).all()


@pytest.mark.parametrize("processes", [2, 3, 7])
def test_shares_are_disjoint_and_complete(processes: int):
    source = graph()
    ranks = [of_rank(WholeGraph(source, processes), rank) for rank in range(processes)]
    for stage in STAGES:
        together = torch.stack([data[stage] for data in ranks]).sum(dim=0)
        assert together.tolist() == getattr(source.masks, stage.removesuffix("_mask")).astype(int).tolist()
        counts = [int(data[stage].sum()) for data in ranks]
        assert max(counts) - min(counts) <= 1
    for data in ranks:
        assert data.labelled_mask.tolist() == source.masks.train.tolist()
        assert data.loss_scale.item() == pytest.approx(processes * int(data.train_mask.sum()) / 10)
    assert sum(data.loss_scale.item() for data in ranks) == pytest.approx(processes)


@pytest.mark.parametrize("processes", [2, 3, 7])
def test_the_average_of_the_gradients_is_that_of_one_process(processes: int):
    line = nn.Linear(4, 3)

    def gradient(data) -> torch.Tensor:
        loss = nn.functional.cross_entropy(line(data.x)[data.train_mask], data.y[data.train_mask]) * data.loss_scale
        return torch.autograd.grad(loss, line.weight)[0]

    source = graph()
    averaged = torch.stack([gradient(of_rank(WholeGraph(source, processes), rank)) for rank in range(processes)]).mean(dim=0)
    torch.testing.assert_close(averaged, gradient(of_rank(WholeGraph(source), 0)))


def test_a_changed_batch_changes_no_other():
    whole = WholeGraph(graph())
    data = of_rank(whole, 0)
    kept = data.edge_index
    data.edge_index = data.edge_index[:, :1]
    data.extra = 1
    again = of_rank(whole, 0)
    assert again.edge_index is kept
    assert "extra" not in again


def test_too_many_processes():
    with pytest.raises(ValueError, match="10 train nodes cannot be shared by 11 processes: use at most 10"):
        WholeGraph(graph(), 11)
