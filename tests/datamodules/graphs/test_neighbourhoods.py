import numpy as np
import pytest
import torch

from datamodules.base import BatchKey, ShardedBatchSampler
from datamodules.graphs.graph_arrays import Masks
from datamodules.graphs.neighbourhoods import Neighbourhoods
from datamodules.graphs.node_graph import NodeGraph
from datamodules.graphs.prepare import Edges, prepare_edges

NODES = 90


def graph(self_loops: bool = True) -> NodeGraph:
    generator = np.random.default_rng(0)
    kind = generator.permutation(np.arange(NODES) % 3)
    edges = prepare_edges(generator.integers(NODES, size=(500, 2)), NODES, directed=True)
    phase = (edges.source * NODES + edges.target).astype(np.float32)
    x = torch.arange(NODES, dtype=torch.float32)[:, None].sin()
    edges = Edges(edges.source, edges.target, edges.direction, phase)
    return NodeGraph(x, torch.arange(NODES) % 4, edges, Masks(*(kind == number for number in range(3))), self_loops)


def batches(
    stage: str = "train", fan_outs=(3, 3), rank: int = 0, world_size: int = 1, epoch: int = 0, seed: int = 0, batch: int = 10
):
    dataset = Neighbourhoods(graph(), stage, fan_outs, seed)
    keys = ShardedBatchSampler(
        len(dataset), batch, shuffle=stage == "train", drop_last=stage == "train", rank=rank, world_size=world_size
    )
    keys.set_epoch(epoch)
    return [dataset[key] for key in keys]


def test_a_batch():
    source = graph()
    for data in batches():
        loops = data.edge_index[0] == data.edge_index[1]
        assert data.edge_index[0, loops].tolist() == list(range(len(data.n_id))), "one self-loop each, added after sampling"
        code = data.edge_index[1] * len(data.n_id) + data.edge_index[0]
        assert (code.diff() > 0).all()
        ends = data.n_id[data.edge_index[:, ~loops]]
        assert (data.edge_phase[~loops] == ends[0] * NODES + ends[1]).all(), "a phase stays with its edge"
        assert (data.edge_phase[loops] == 0).all()
        stored = dict(zip(source.edges.phase.tolist(), source.edges.direction.tolist(), strict=True))
        assert data.edge_direction[~loops].tolist() == [stored[phase] for phase in data.edge_phase[~loops].tolist()]
        assert data.x.equal(source.x[data.n_id])
        assert data.y.equal(source.y[data.n_id])
        assert data.labelled_mask.tolist() == source.masks.train[data.n_id].tolist()
        assert data.train_mask.tolist() == [True] * 10 + [False] * (len(data.n_id) - 10)
        assert not data.val_mask.any()
        assert not data.test_mask.any()
        assert data.loss_scale.item() == 1
        assert data.loss_scale.shape == ()


@pytest.mark.parametrize("stage", ["train", "val", "test"])
def test_every_node_of_the_stage_is_a_seed_once(stage: str):
    seeds = torch.cat([data.n_id[data[f"{stage}_mask"]] for data in batches(stage)])
    assert sorted(seeds.tolist()) == graph().members(stage).tolist()
    assert len(seeds) == 30


def equal(one, other) -> bool:
    return all(a.n_id.equal(b.n_id) and a.edge_index.equal(b.edge_index) for a, b in zip(one, other, strict=True))


def test_training_draws_anew_and_evaluation_does_not():
    assert equal(batches(), batches())
    assert not equal(batches(), batches(seed=1))
    first, second = batches(epoch=0, batch=30), batches(epoch=1, batch=30)
    assert sorted(first[0].n_id[:30]) == sorted(second[0].n_id[:30])
    assert edges_of(first) != edges_of(second)
    assert equal(batches("val", epoch=0), batches("val", epoch=5))


def edges_of(found) -> list[tuple[int, int]]:
    return sorted(tuple(edge) for data in found for edge in data.n_id[data.edge_index].t().tolist())


def smoothed(data) -> dict[int, float]:
    """Two rounds of averaging over incoming edges, at the seed nodes."""
    source, target = data.edge_index
    degree = target.bincount(minlength=len(data.x))
    x = data.x[:, 0].double()
    for _ in range(2):
        x = torch.zeros_like(x).index_add(0, target, x[source]) / degree
    seeds = data.train_mask
    return dict(zip(data.n_id[seeds].tolist(), x[seeds].tolist(), strict=True))


@pytest.mark.parametrize("world_size", [2, 5])
def test_ranks_see_what_one_process_sees(world_size: int):
    alone = batches()
    ranks = [batches(rank=rank, world_size=world_size) for rank in range(world_size)]
    for step, whole in enumerate(alone):
        shares = [smoothed(found[step]) for found in ranks]
        together = {node: value for share in shares for node, value in share.items()}
        assert sum(map(len, shares)) == len(together) == 10
        assert together == pytest.approx(smoothed(whole), abs=1e-12)
        assert all(found[step].loss_scale.item() == 1 for found in ranks)


def test_shares_of_unequal_size_are_weighted():
    dataset = Neighbourhoods(graph(), "train", [2])
    shares = [dataset[BatchKey(0, 0, np.arange(5), slice(rank, None, 2))] for rank in range(2)]
    assert [data.loss_scale.item() for data in shares] == pytest.approx([2 * 3 / 5, 2 * 2 / 5])


def test_all_neighbours_give_the_whole_neighbourhood():
    source = graph()
    (data,) = batches(fan_outs=(-1,), batch=30)
    incoming = np.isin(source.edges.target, source.members("train"))
    loops = data.edge_index[0] == data.edge_index[1]
    assert sorted(data.edge_phase[~loops].tolist()) == sorted(source.edges.phase[incoming].tolist())
